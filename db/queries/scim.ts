import type { Role, TeamRole } from "../../src/lib/roles.ts";
import type { DatabaseTransaction, SqlFragment } from "../client.ts";
import { recordChange } from "./changes.ts";

/** A member, as an identity provider sees it. */
export interface ScimUser {
  readonly id: string;
  readonly personId: string;
  readonly externalId: string | null;
  readonly email: string;
  readonly name: string;
  readonly role: Role;
  readonly isActive: boolean;
  readonly teams: readonly { readonly id: string; readonly name: string }[];
  readonly createdAtMs: number;
  /** True if the account belongs to this organization alone, so that its identity provider may change it. */
  readonly isManaged: boolean;
}

interface UserRow {
  readonly id: string;
  readonly person_id: string;
  readonly external_id: string | null;
  readonly email: string;
  readonly name: string;
  readonly role: Role;
  readonly is_active: boolean;
  readonly teams: ScimUser["teams"];
  readonly created_at: Date;
  readonly is_managed: boolean;
}

export interface UserLookup {
  readonly id?: string | undefined;
  readonly email?: string | undefined;
  readonly externalId?: string | undefined;
}

export interface ScimPage {
  readonly limit: number;
  readonly offset: number;
}

function usersThat(
  sql: DatabaseTransaction,
  organizationId: string,
  { id, email, externalId }: UserLookup,
): SqlFragment {
  return sql`m.organization_id = ${organizationId} AND m.deleted_at IS NULL
    ${id === undefined ? sql`` : sql`AND m.id = ${id}`}
    ${email === undefined ? sql`` : sql`AND lower(p.email) = lower(${email})`}
    ${externalId === undefined ? sql`` : sql`AND m.external_id = ${externalId}`}`;
}

/** Returns the number of members that meet all stated conditions. */
export async function countScimUsers(
  sql: DatabaseTransaction,
  organizationId: string,
  lookup: UserLookup,
): Promise<number> {
  const [row] = await sql<{ total: bigint }[]>`
    SELECT count(*) AS total FROM members m JOIN people p ON p.id = m.person_id
    WHERE ${usersThat(sql, organizationId, lookup)}`;
  return Number(row!.total);
}

/** Returns a page of the members that meet all stated conditions, in the order of their ids. */
export async function findScimUsers(
  sql: DatabaseTransaction,
  organizationId: string,
  lookup: UserLookup,
  { limit, offset }: ScimPage,
): Promise<ScimUser[]> {
  const rows = await sql<UserRow[]>`
    SELECT m.id, m.person_id, m.external_id, p.email, p.name, m.role, m.is_active, m.created_at, coalesce((
      SELECT jsonb_agg(jsonb_build_object('id', t.id, 'name', t.name) ORDER BY t.id)
      FROM team_members tm JOIN teams t ON t.id = tm.team_id WHERE tm.member_id = m.id
    ), '[]') AS teams, p.operator_role IS NULL AND NOT EXISTS (
      SELECT 1 FROM members o
      WHERE o.person_id = p.id AND o.organization_id <> m.organization_id AND o.deleted_at IS NULL
    ) AS is_managed
    FROM members m JOIN people p ON p.id = m.person_id
    WHERE ${usersThat(sql, organizationId, lookup)}
    ORDER BY m.id LIMIT ${limit} OFFSET ${offset}`;
  return rows.map((row) => ({
    id: row.id,
    personId: row.person_id,
    externalId: row.external_id,
    email: row.email,
    name: row.name,
    role: row.role,
    isActive: row.is_active,
    teams: row.teams,
    createdAtMs: row.created_at.getTime(),
    isManaged: row.is_managed,
  }));
}

/** Locks an account. Returns true if it is no operator's, and belongs to no organization. */
export async function isUnbound(sql: DatabaseTransaction, personId: string): Promise<boolean> {
  const unbound = await sql`
    SELECT 1 FROM people p WHERE id = ${personId} AND operator_role IS NULL AND NOT EXISTS (
      SELECT 1 FROM members m WHERE m.person_id = p.id AND m.deleted_at IS NULL
    ) FOR UPDATE`;
  return unbound.count > 0;
}

/** Changes address and name of an account. Fails with 23505 if another account has the address. */
export async function changeScimPerson(
  sql: DatabaseTransaction,
  personId: string,
  { email, name }: { readonly email: string; readonly name: string },
): Promise<void> {
  await sql`UPDATE people SET email = ${email}, name = ${name},
      email_verified_at = CASE WHEN lower(email) = lower(${email}) THEN email_verified_at END
    WHERE id = ${personId} AND (email, name) IS DISTINCT FROM (${email}, ${name})`;
}

export async function setExternalId(
  sql: DatabaseTransaction,
  table: "members" | "teams",
  id: string,
  externalId: string | null,
): Promise<void> {
  await sql`UPDATE ${sql(table)} SET external_id = ${externalId} WHERE id = ${id}`;
  if (table === "teams" || externalId === null) return;
  // A member that SCIM manages no longer follows the rules of an identity provider.
  await sql`UPDATE members SET identity_provider_id = NULL
    WHERE id = ${id} AND identity_provider_id IS NOT NULL`;
}

/** A team, as an identity provider sees it. */
export interface ScimGroup {
  readonly id: string;
  readonly externalId: string | null;
  readonly name: string;
  readonly members: readonly { readonly id: string; readonly email: string }[];
  readonly createdAtMs: number;
}

export interface GroupLookup {
  readonly id?: string | undefined;
  readonly name?: string | undefined;
  readonly externalId?: string | undefined;
}

function groupsThat(
  sql: DatabaseTransaction,
  organizationId: string,
  { id, name, externalId }: GroupLookup,
): SqlFragment {
  return sql`t.organization_id = ${organizationId} AND t.deleted_at IS NULL
    ${id === undefined ? sql`` : sql`AND t.id = ${id}`}
    ${name === undefined ? sql`` : sql`AND lower(t.name) = lower(${name})`}
    ${externalId === undefined ? sql`` : sql`AND t.external_id = ${externalId}`}`;
}

/** Returns the number of teams that meet all stated conditions. */
export async function countScimGroups(
  sql: DatabaseTransaction,
  organizationId: string,
  lookup: GroupLookup,
): Promise<number> {
  const [row] = await sql<{ total: bigint }[]>`
    SELECT count(*) AS total FROM teams t WHERE ${groupsThat(sql, organizationId, lookup)}`;
  return Number(row!.total);
}

/** Returns a page of the teams that meet all stated conditions, in the order of their ids. */
export async function findScimGroups(
  sql: DatabaseTransaction,
  organizationId: string,
  lookup: GroupLookup,
  { limit, offset }: ScimPage,
): Promise<ScimGroup[]> {
  const rows = await sql<
    {
      readonly id: string;
      readonly external_id: string | null;
      readonly name: string;
      readonly members: ScimGroup["members"];
      readonly created_at: Date;
    }[]
  >`
    SELECT t.id, t.external_id, t.name, t.created_at, coalesce((
      SELECT jsonb_agg(jsonb_build_object('id', m.id, 'email', p.email) ORDER BY m.id)
      FROM team_members tm JOIN members m ON m.id = tm.member_id JOIN people p ON p.id = m.person_id
      WHERE tm.team_id = t.id AND m.deleted_at IS NULL
    ), '[]') AS members
    FROM teams t WHERE ${groupsThat(sql, organizationId, lookup)}
    ORDER BY t.id LIMIT ${limit} OFFSET ${offset}`;
  return rows.map((row) => ({
    id: row.id,
    externalId: row.external_id,
    name: row.name,
    members: row.members,
    createdAtMs: row.created_at.getTime(),
  }));
}

/** Replaces the members of a team. Members that stay keep their role. Returns false if one of them does not exist. */
export async function replaceTeamMembers(
  sql: DatabaseTransaction,
  { organizationId, teamId }: { readonly organizationId: string; readonly teamId: string },
  memberIds: readonly string[],
): Promise<boolean> {
  const ids = sql.array([...new Set(memberIds)]);
  const found = await sql`
    SELECT 1 FROM members WHERE id = ANY (${ids}::text[]) AND organization_id = ${organizationId}
      AND deleted_at IS NULL`;
  if (found.count < new Set(memberIds).size) return false;
  await sql`DELETE FROM team_members WHERE team_id = ${teamId} AND NOT (member_id = ANY (${ids}::text[]))`;
  const role: TeamRole = "member";
  await sql`INSERT INTO team_members (team_id, member_id, organization_id, role)
    SELECT ${teamId}, member, ${organizationId}, ${role} FROM unnest(${ids}::text[]) AS member
    ON CONFLICT (team_id, member_id) DO NOTHING`;
  return true;
}

export async function renameTeam(
  sql: DatabaseTransaction,
  id: string,
  name: string,
): Promise<void> {
  await sql`UPDATE teams SET name = ${name} WHERE id = ${id} AND name <> ${name}`;
  await recordChange(sql, "key-owner", id);
}
