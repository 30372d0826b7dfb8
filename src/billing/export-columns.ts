import { Type } from "typebox";
import type { KeyNames } from "../../db/queries/object-names.ts";
import type { CsvCell } from "../http/csv.ts";

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

export function keyNameCells(
  keyId: string | null,
  names: ReadonlyMap<string, KeyNames>,
): readonly CsvCell[] {
  const key = keyId === null ? undefined : names.get(keyId);
  if (key === undefined) return KEY_NAME_COLUMNS.map(() => null);
  return [key.name, key.teamId, key.teamName, key.ownerId, key.ownerName];
}
