import type { Database } from "../client.ts";

export type NamedKind = "key" | "team" | "member";

/**
 * Returns the names of an organization's keys, teams or members by their ids. Deleted ones keep their names. Ids of
 * other organizations are left out.
 */
export async function findNames(
  sql: Database,
  organizationId: string,
  kind: NamedKind,
  ids: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  if (ids.length === 0) return new Map();
  const wanted = sql`${sql.array([...new Set(ids)])}::text[]`;
  const tables = {
    key: sql`api_keys o WHERE`,
    team: sql`teams o WHERE`,
    member: sql`members o JOIN people p ON p.id = o.person_id WHERE`,
  };
  const rows = await sql<{ id: string; name: string }[]>`
    SELECT o.id, ${kind === "member" ? sql`p.name` : sql`o.name`} AS name
    FROM ${tables[kind]} o.organization_id = ${organizationId} AND o.id = ANY (${wanted})`;
  return new Map(rows.map(({ id, name }) => [id, name]));
}

/** The names beside the id of a key in an export. */
export interface KeyNames {
  readonly name: string | null;
  readonly teamId: string | null;
  readonly teamName: string | null;
  readonly ownerId: string | null;
  readonly ownerName: string | null;
}

/** Returns the names of an organization's keys, with the teams and the owners that they have now. */
export async function findKeyNames(
  sql: Database,
  organizationId: string,
  ids: readonly string[],
): Promise<ReadonlyMap<string, KeyNames>> {
  if (ids.length === 0) return new Map();
  const rows = await sql<
    {
      id: string;
      name: string;
      team_id: string | null;
      team_name: string | null;
      owner_id: string | null;
      owner_name: string | null;
    }[]
  >`SELECT k.id, k.name, k.team_id, t.name AS team_name, k.owner_id, p.name AS owner_name
    FROM api_keys k LEFT JOIN teams t ON t.id = k.team_id LEFT JOIN members m ON m.id = k.owner_id
      LEFT JOIN people p ON p.id = m.person_id
    WHERE k.organization_id = ${organizationId} AND k.id = ANY (${sql.array([...new Set(ids)])}::text[])`;
  return new Map(
    rows.map((row) => [
      row.id,
      {
        name: row.name,
        teamId: row.team_id,
        teamName: row.team_name,
        ownerId: row.owner_id,
        ownerName: row.owner_name,
      },
    ]),
  );
}
