import type { Role, TeamRole } from "../../src/lib/roles.ts";
import { type Database, type DatabaseTransaction, inOneSnapshot } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { invitations, type members } from "../schema/people.ts";
import { recordChange } from "./changes.ts";
import { type SubjectLimits, setOwnerBudget } from "./subject-budgets.ts";

export interface TeamMembership {
  readonly id: string;
  readonly role: TeamRole;
}

export interface Member extends SubjectLimits {
  readonly id: string;
  readonly personId: string;
  readonly email: string;
  readonly name: string;
  readonly role: Role;
  readonly teams: readonly TeamMembership[];
  readonly isActive: boolean;
  readonly lastSignInAtMs: number | null;
  readonly createdAtMs: number;
}

type MemberRow = RowOf<typeof members> & {
  readonly email: string;
  readonly name: string;
  readonly last_sign_in_at: Date | null;
  readonly teams: readonly TeamMembership[];
  readonly daily_budget_nano: bigint | null;
  readonly monthly_budget_nano: bigint | null;
};

function memberOf(row: MemberRow): Member {
  return {
    id: row.id,
    personId: row.person_id,
    email: row.email,
    name: row.name,
    role: row.role,
    teams: row.teams,
    dailyBudgetNano: row.daily_budget_nano,
    monthlyBudgetNano: row.monthly_budget_nano,
    isActive: row.is_active,
    lastSignInAtMs: row.last_sign_in_at?.getTime() ?? null,
    createdAtMs: row.created_at.getTime(),
  };
}

function selectMembers(sql: Database | DatabaseTransaction, organizationId: string) {
  return sql`
    SELECT m.*, p.email, p.name, p.last_sign_in_at, b.daily_budget_nano, b.monthly_budget_nano, coalesce((
      SELECT jsonb_agg(jsonb_build_object('id', t.team_id, 'role', t.role) ORDER BY t.team_id)
      FROM team_members t WHERE t.member_id = m.id
    ), '[]') AS teams
    FROM members m JOIN people p ON p.id = m.person_id
    LEFT JOIN subject_budgets b ON b.organization_id = m.organization_id AND b.subject_type = 'member'
      AND b.subject_value = m.id
    WHERE m.organization_id = ${organizationId} AND m.deleted_at IS NULL`;
}

/** Lists members in the order of their addresses, with their total number. */
export function listMembers(
  sql: Database,
  organizationId: string,
  { limit, offset }: { readonly limit: number; readonly offset: number },
): Promise<{ members: Member[]; total: number }> {
  return inOneSnapshot(sql, async (snapshot) => {
    const [count] = await snapshot<{ total: bigint }[]>`
      SELECT count(*) AS total FROM members
      WHERE organization_id = ${organizationId} AND deleted_at IS NULL`;
    const rows = await snapshot<MemberRow[]>`
      ${selectMembers(snapshot, organizationId)}
      ORDER BY lower(p.email), m.id LIMIT ${limit} OFFSET ${offset}`;
    return { members: rows.map(memberOf), total: Number(count!.total) };
  });
}

export async function findMember(
  sql: Database | DatabaseTransaction,
  organizationId: string,
  id: string,
): Promise<Member | undefined> {
  const [row] = await sql<MemberRow[]>`
    ${selectMembers(sql, organizationId)} AND m.id = ${id}`;
  return row && memberOf(row);
}

/** The change would leave an organization without an active owner. */
export class LastOwnerError extends Error {}

/** One of the teams does not exist in the organization. */
export class UnknownTeamError extends Error {}

export interface MemberChange {
  readonly role?: Role | undefined;
  readonly isActive?: boolean | undefined;
  /** All teams of the member. */
  readonly teams?: readonly TeamMembership[] | undefined;
  readonly limits: Partial<SubjectLimits>;
}

interface ChangeFacts {
  readonly newBudgetId: string;
  readonly nowMs: number;
}

/**
 * Changes a member. `assertMay` gets the member before the change, and may throw. Returns undefined if the member does
 * not exist. Throws LastOwnerError and UnknownTeamError. Sessions of a member that becomes inactive end.
 */
export async function changeMember(
  sql: DatabaseTransaction,
  organizationId: string,
  id: string,
  { role, isActive, teams, limits }: MemberChange,
  { newBudgetId, nowMs }: ChangeFacts,
  assertMay: (before: Member) => void = () => {},
): Promise<Member | undefined> {
  await lockMembers(sql, organizationId);
  const before = await findMember(sql, organizationId, id);
  if (before === undefined) return undefined;
  assertMay(before);
  const [nextRole, nextActive] = [role ?? before.role, isActive ?? before.isActive];
  if (nextRole !== before.role || nextActive !== before.isActive) {
    // A role that an admin or SCIM sets no longer follows the rules of an identity provider.
    await sql`UPDATE members SET role = ${nextRole}, is_active = ${nextActive},
        identity_provider_id = CASE WHEN role = ${nextRole} THEN identity_provider_id END
      WHERE id = ${id}`;
    if (before.role === "owner") await assertOwner(sql, organizationId);
  }
  if (!nextActive) await endSessions(sql, id);
  if (teams !== undefined) await replaceTeams(sql, organizationId, id, teams);
  if (Object.keys(limits).length > 0) {
    const owner = { organizationId, type: "member", id } as const;
    await setOwnerBudget(sql, owner, { ...limits, budgetId: newBudgetId }, nowMs);
  }
  await recordChange(sql, "key-owner", id);
  return findMember(sql, organizationId, id);
}

/** Removes a member: sessions end, and its keys are rejected. Returns false if it does not exist. */
export async function removeMember(
  sql: DatabaseTransaction,
  organizationId: string,
  id: string,
  assertMay: (before: Member) => void = () => {},
): Promise<boolean> {
  await lockMembers(sql, organizationId);
  const before = await findMember(sql, organizationId, id);
  if (before === undefined) return false;
  assertMay(before);
  await endMemberships(sql, [id]);
  if (before.role === "owner") await assertOwner(sql, organizationId);
  return true;
}

/** Ends memberships, of last owners too, with their sessions, teams and keys. Their organizations are locked before. */
export async function endMemberships(
  sql: DatabaseTransaction,
  memberIds: readonly string[],
): Promise<void> {
  if (memberIds.length === 0) return;
  const ids = sql.array([...memberIds]);
  await sql`DELETE FROM team_members WHERE member_id = ANY (${ids}::text[])`;
  // An open invitation would make the person a member again.
  await sql`UPDATE invitations i SET deleted_at = clock_timestamp()
    FROM members m JOIN people p ON p.id = m.person_id
    WHERE m.id = ANY (${ids}::text[]) AND i.organization_id = m.organization_id
      AND lower(i.email) = lower(p.email) AND i.accepted_at IS NULL AND i.deleted_at IS NULL`;
  await sql`UPDATE members SET deleted_at = clock_timestamp() WHERE id = ANY (${ids}::text[])`;
  await sql`DELETE FROM dashboard_sessions
    WHERE key_id = ANY (${ids}::text[]) AND person_id IS NOT NULL`;
  for (const id of memberIds) await recordChange(sql, "key-owner", id);
}

/** One change of an organization's members at a time, so that an owner always remains. */
export async function lockMembers(sql: DatabaseTransaction, organizationId: string): Promise<void> {
  await sql`SELECT 1 FROM organizations WHERE id = ${organizationId} FOR NO KEY UPDATE`;
}

/** Throws LastOwnerError if no active member is an owner. */
async function assertOwner(sql: DatabaseTransaction, organizationId: string): Promise<void> {
  const [row] = await sql<{ owners: bigint }[]>`
    SELECT count(*) AS owners FROM members
    WHERE organization_id = ${organizationId} AND role = 'owner' AND is_active AND deleted_at IS NULL`;
  if (row!.owners === 0n) throw new LastOwnerError();
}

async function endSessions(sql: DatabaseTransaction, memberId: string): Promise<void> {
  await sql`DELETE FROM dashboard_sessions WHERE key_id = ${memberId} AND person_id IS NOT NULL`;
}

export async function replaceTeams(
  sql: DatabaseTransaction,
  organizationId: string,
  memberId: string,
  teams: readonly TeamMembership[],
): Promise<void> {
  const ids = sql.array(teams.map(({ id }) => id));
  const found = await sql`
    SELECT id FROM teams WHERE id = ANY (${ids}::text[]) AND organization_id = ${organizationId}
      AND deleted_at IS NULL FOR SHARE`;
  if (found.count < teams.length) throw new UnknownTeamError();
  await sql`DELETE FROM team_members
    WHERE member_id = ${memberId} AND NOT (team_id = ANY (${ids}::text[]))`;
  for (const { id, role } of teams) {
    await sql`INSERT INTO team_members AS t (team_id, member_id, organization_id, role)
      VALUES (${id}, ${memberId}, ${organizationId}, ${role})
      ON CONFLICT (team_id, member_id) DO UPDATE SET role = excluded.role WHERE t.role <> excluded.role`;
  }
}

export type Invitation = RecordOf<typeof invitations, "tokenHash" | "deletedAt">;
const invitationOf = recordReader(invitations, "tokenHash", "deletedAt");

export const MAX_OPEN_INVITATIONS = 1_000;

/** The organization has its maximum number of open invitations. */
export class TooManyInvitationsError extends Error {}

/** The address belongs to a member already. */
export class AlreadyMemberError extends Error {}

/**
 * Inserts an invitation. An open one to the same address no longer works. Throws UnknownTeamError, AlreadyMemberError
 * and TooManyInvitationsError.
 */
export function insertInvitation(
  sql: Database,
  invitation: Omit<Invitation, "acceptedAtMs"> & { readonly tokenHash: string },
): Promise<void> {
  const { id, organizationId, email, role, teamIds, tokenHash, createdAtMs, expiresAtMs } =
    invitation;
  const [createdAt, expiresAt] = [new Date(createdAtMs), new Date(expiresAtMs)];
  return sql.begin(async (transaction) => {
    await lockMembers(transaction, organizationId);
    const teams = await transaction`
      SELECT 1 FROM teams WHERE id = ANY (${transaction.array([...teamIds])}::text[])
        AND organization_id = ${organizationId} AND deleted_at IS NULL`;
    if (teams.count < new Set(teamIds).size) throw new UnknownTeamError();
    const present = await transaction`
      SELECT 1 FROM members m JOIN people p ON p.id = m.person_id
      WHERE m.organization_id = ${organizationId} AND m.deleted_at IS NULL
        AND lower(p.email) = lower(${email})`;
    if (present.count > 0) throw new AlreadyMemberError();
    await transaction`UPDATE invitations SET deleted_at = ${createdAt}
      WHERE organization_id = ${organizationId} AND lower(email) = lower(${email})
        AND accepted_at IS NULL AND deleted_at IS NULL`;
    await transaction`INSERT INTO invitations
        (id, organization_id, email, role, team_ids, token_hash, created_at, expires_at)
      VALUES (${id}, ${organizationId}, ${email}, ${role}, ${transaction.array([...teamIds])}::text[],
        ${tokenHash}, ${createdAt}, ${expiresAt})`;
    const [open] = await transaction<{ count: bigint }[]>`
      SELECT count(*) AS count FROM invitations
      WHERE organization_id = ${organizationId} AND accepted_at IS NULL AND deleted_at IS NULL
        AND expires_at > ${createdAt}`;
    if (open!.count > BigInt(MAX_OPEN_INVITATIONS)) throw new TooManyInvitationsError();
  });
}

/** Lists invitations that were not deleted, newest first, with their total number. */
export function listInvitations(
  sql: Database,
  organizationId: string,
  { limit, offset }: { readonly limit: number; readonly offset: number },
): Promise<{ invitations: Invitation[]; total: number }> {
  return inOneSnapshot(sql, async (snapshot) => {
    const chosen = snapshot`organization_id = ${organizationId} AND deleted_at IS NULL`;
    const [count] = await snapshot<{ total: bigint }[]>`
      SELECT count(*) AS total FROM invitations WHERE ${chosen}`;
    const rows = await snapshot<RowOf<typeof invitations>[]>`
      SELECT * FROM invitations WHERE ${chosen} ORDER BY id DESC LIMIT ${limit} OFFSET ${offset}`;
    return { invitations: rows.map(invitationOf), total: Number(count!.total) };
  });
}

/** Deletes an invitation: its link no longer works. Returns false if it does not exist. */
export function deleteInvitation(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const deleted = await transaction`
      UPDATE invitations SET deleted_at = clock_timestamp()
      WHERE id = ${id} AND organization_id = ${organizationId} AND deleted_at IS NULL`;
    return deleted.count > 0;
  });
}

/** Returns the open invitation of a link with its organization's name. Undefined if there is none. */
export async function findOpenInvitation(
  sql: Database | DatabaseTransaction,
  tokenHash: string,
  nowMs: number,
): Promise<(Invitation & { readonly organizationName: string }) | undefined> {
  const [row] = await sql<(RowOf<typeof invitations> & { readonly organization_name: string })[]>`
    SELECT i.*, o.name AS organization_name FROM invitations i
    JOIN organizations o ON o.id = i.organization_id
    WHERE i.token_hash = ${tokenHash} AND i.accepted_at IS NULL AND i.deleted_at IS NULL
      AND i.expires_at > ${new Date(nowMs)}
    FOR UPDATE OF i`;
  return row && { ...invitationOf(row), organizationName: row.organization_name };
}

/**
 * Accepts an invitation for a person, in the transaction that found it: the person becomes a member with its role and
 * its teams, as far as these still exist. A person who is a member already keeps the role.
 */
export async function acceptInvitation(
  sql: DatabaseTransaction,
  { id, organizationId, role, teamIds }: Invitation,
  { personId, newMemberId, nowMs }: { personId: string; newMemberId: string; nowMs: number },
): Promise<void> {
  await sql`UPDATE invitations SET accepted_at = ${new Date(nowMs)} WHERE id = ${id}`;
  const [member] = await sql<{ id: string }[]>`
    INSERT INTO members (id, organization_id, person_id, role, created_at)
    VALUES (${newMemberId}, ${organizationId}, ${personId}, ${role}, ${new Date(nowMs)})
    ON CONFLICT (organization_id, person_id) WHERE deleted_at IS NULL DO NOTHING RETURNING id`;
  if (member === undefined) return;
  await sql`INSERT INTO team_members (team_id, member_id, organization_id, role)
    SELECT id, ${member.id}, organization_id, 'member' FROM teams
    WHERE id = ANY (${sql.array([...teamIds])}::text[]) AND organization_id = ${organizationId}
      AND deleted_at IS NULL`;
}

/** Inserts the first member of an organization, or another one without an invitation. */
export async function insertMember(
  sql: DatabaseTransaction,
  member: {
    readonly id: string;
    readonly organizationId: string;
    readonly personId: string;
    readonly role: Role;
    readonly createdAtMs: number;
    readonly identityProviderId?: string;
  },
): Promise<void> {
  await sql`INSERT INTO members
      (id, organization_id, person_id, role, identity_provider_id, created_at)
    VALUES (${member.id}, ${member.organizationId}, ${member.personId}, ${member.role},
      ${member.identityProviderId ?? null}, ${new Date(member.createdAtMs)})`;
}
