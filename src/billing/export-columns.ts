import { Type } from "typebox";
import type { Database } from "../../db/client.ts";
import { findKeyNames, type KeyNames } from "../../db/queries/object-names.ts";
import type { CsvCell } from "../http/csv.ts";
import { type ApiKeyRecord, holdsScope } from "../lib/api-key-record.ts";

/** The query field of a list that can be sent as a whole in CSV. */
export const formatField = Type.Optional(
  Type.Enum(["json", "csv"], {
    default: "json",
    description:
      "`csv` sends all matching entries, at most 1,000,000, or one page if the query states a page.",
  }),
);

/** Returns true if the query asks for one page of a list, and not for all of it. */
export function isPage(query: Readonly<Record<string, unknown>>): boolean {
  return ["limit", "offset", "after"].some((name) => query[name] !== undefined);
}

/** Columns after `key_id`: its name, and the team and the owner that it has now. */
export const KEY_NAME_COLUMNS = ["key_name", "team_id", "team_name", "owner_id", "owner_name"];

/** Returns true if exports of the caller have the names of keys, teams and members, which need this scope elsewhere. */
export function showsNames(caller: ApiKeyRecord): boolean {
  return holdsScope(caller, "keys:manage");
}

/** Returns the names of the keys in an export. Callers that cannot list keys get the ids alone. */
export async function exportedKeyNames(
  sql: Database,
  caller: ApiKeyRecord,
  ids: readonly string[],
): Promise<ReadonlyMap<string, KeyNames>> {
  const found = await findKeyNames(sql, caller.organizationId, ids);
  if (showsNames(caller)) return found;
  const unnamed = { name: null, teamName: null, ownerName: null };
  return new Map([...found].map(([id, names]) => [id, { ...names, ...unnamed }]));
}

export function keyNameCells(
  keyId: string | null,
  names: ReadonlyMap<string, KeyNames>,
): readonly CsvCell[] {
  const key = keyId === null ? undefined : names.get(keyId);
  if (key === undefined) return KEY_NAME_COLUMNS.map(() => null);
  return [key.name, key.teamId, key.teamName, key.ownerId, key.ownerName];
}
