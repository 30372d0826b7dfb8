import type { OperatorRole, Role } from "../../src/lib/roles.ts";
import type { Database, DatabaseTransaction, Query } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { people } from "../schema/people.ts";
import { recordAct } from "./audit-log.ts";
import type { SessionBounds } from "./dashboard-sessions.ts";
import { sealingKeyId } from "./master-key.ts";

export type Person = RecordOf<typeof people>;
const personOf = recordReader(people);

/** A membership of a person, as far as sign-in and switching need it. */
export interface Membership {
  readonly memberId: string;
  readonly organizationId: string;
  readonly organizationName: string;
  readonly role: Role;
  readonly teams: readonly { readonly id: string; readonly name: string }[];
}

/** A person with the active memberships. */
export interface PersonAccess {
  readonly person: Person;
  readonly memberships: readonly Membership[];
}

type Lookup = { readonly id: string } | { readonly email: string };

/** Returns a person by id or, ignoring case, by address. Undefined if there is no such account. */
export async function findPerson(
  sql: Database | DatabaseTransaction,
  lookup: Lookup,
): Promise<Person | undefined> {
  const [row] = await sql<RowOf<typeof people>[]>`
    SELECT * FROM people WHERE
      ${"id" in lookup ? sql`id = ${lookup.id}` : sql`lower(email) = lower(${lookup.email})`}`;
  return row && personOf(row);
}

/** Returns a person with the active memberships, the latest sign-in first. */
export function findPersonAccess(id: string): Query<PersonAccess | undefined> {
  return {
    name: "person-access",
    tables: ["people", "members", "organizations", "teams", "team_members"],
    async run(sql) {
      const [row] = await sql<(RowOf<typeof people> & { readonly memberships: Membership[] })[]>`
        SELECT p.*, coalesce((
          SELECT jsonb_agg(jsonb_build_object('memberId', m.id, 'organizationId', m.organization_id,
            'organizationName', o.name, 'role', m.role, 'teams', coalesce((
              SELECT jsonb_agg(jsonb_build_object('id', t.id, 'name', t.name) ORDER BY t.name)
              FROM team_members tm JOIN teams t ON t.id = tm.team_id
              WHERE tm.member_id = m.id AND t.deleted_at IS NULL), '[]')) ORDER BY o.name, m.id)
          FROM members m JOIN organizations o ON o.id = m.organization_id
          WHERE m.person_id = p.id AND m.is_active AND m.deleted_at IS NULL
        ), '[]') AS memberships
        FROM people p WHERE p.id = ${id}`;
      return row && { person: personOf(row), memberships: row.memberships };
    },
  };
}

/** Inserts an account. Fails with 23505 if the address has one. */
export async function insertPerson(
  sql: DatabaseTransaction,
  person: Pick<Person, "id" | "email" | "name" | "passwordHash" | "operatorRole" | "createdAtMs">,
): Promise<void> {
  await sql`INSERT INTO people (id, email, name, password_hash, operator_role, created_at)
    VALUES (${person.id}, ${person.email}, ${person.name}, ${person.passwordHash}, ${person.operatorRole},
      ${new Date(person.createdAtMs)})`;
}

export async function noteSignIn(sql: Database, id: string, nowMs: number): Promise<void> {
  await sql`UPDATE people SET last_sign_in_at = ${new Date(nowMs)} WHERE id = ${id}`;
}

/** Changes the name. Returns false if the account does not exist. */
export async function changePersonName(sql: Database, id: string, name: string): Promise<void> {
  await sql.begin((transaction) => transaction`UPDATE people SET name = ${name} WHERE id = ${id}`);
}

/**
 * Records that the person receives mail at the address. An account whose address was not verified before may have been
 * created by another person: its password, second factor and passkeys no longer sign in, and its sessions end.
 */
export async function verifyEmail(
  sql: DatabaseTransaction,
  id: string,
  nowMs: number,
): Promise<void> {
  const verified = await sql`
    UPDATE people SET email_verified_at = ${new Date(nowMs)}
    WHERE id = ${id} AND email_verified_at IS NULL`;
  if (verified.count > 0) await clearCredentials(sql, id);
}

/** Removes password, second factor and passkeys of an account, and ends its sessions. */
export async function clearCredentials(sql: DatabaseTransaction, id: string): Promise<void> {
  await sql`UPDATE people SET password_hash = NULL, totp_secret = NULL, totp_step = NULL
    WHERE id = ${id}`;
  await sql`DELETE FROM passkeys WHERE person_id = ${id}`;
  await endSessionsOfPerson(sql, id);
}

/** Replaces the password, and ends all sessions of the person except for the one with this token hash. */
export async function replacePassword(
  sql: DatabaseTransaction,
  id: string,
  passwordHash: string,
  currentHash = "",
): Promise<void> {
  await sql`UPDATE people SET password_hash = ${passwordHash} WHERE id = ${id}`;
  await endSessionsOfPerson(sql, id, currentHash);
}

/** Ends all sessions of a person except for the one with this token hash. Returns their number. */
export async function endSessionsOfPerson(
  sql: DatabaseTransaction,
  id: string,
  currentHash = "",
): Promise<number> {
  const ended = await sql`
    DELETE FROM dashboard_sessions WHERE person_id = ${id} AND token_hash <> ${currentHash}`;
  return ended.count;
}

/** An open session of a person. */
export interface PersonSession {
  readonly tokenHash: string;
  readonly createdAtMs: number;
  readonly lastUsedAtMs: number;
}

/** Lists open sessions of a person, the latest use first. */
export async function listSessionsOfPerson(
  sql: Database,
  id: string,
  { createdAfterMs, usedAfterMs }: SessionBounds,
): Promise<PersonSession[]> {
  const rows = await sql<{ token_hash: string; created_at: Date; last_used_at: Date }[]>`
    SELECT token_hash, created_at, last_used_at FROM dashboard_sessions
    WHERE person_id = ${id} AND created_at > ${new Date(createdAfterMs)}
      AND last_used_at > ${new Date(usedAfterMs)}
    ORDER BY last_used_at DESC`;
  return rows.map((row) => ({
    tokenHash: row.token_hash,
    createdAtMs: row.created_at.getTime(),
    lastUsedAtMs: row.last_used_at.getTime(),
  }));
}

/**
 * Replaces the secret of the second factor.
 *
 * @param seal returns the secret sealed under the master key with this id. Undefined removes the second factor
 */
export async function replaceSecondFactor(
  sql: Database,
  id: string,
  seal?: (keyId: string) => Uint8Array,
): Promise<void> {
  await sql.begin(async (transaction) => {
    const secret = seal === undefined ? null : (seal(await sealingKeyId(transaction)) as Buffer);
    await transaction`
      UPDATE people SET totp_secret = ${secret}, totp_step = NULL WHERE id = ${id}`;
  });
}

/** Records the time step of an accepted code. Returns false if the step, or a later one, was accepted before. */
export async function useSecondFactor(sql: Database, id: string, step: number): Promise<boolean> {
  const used = await sql`
    UPDATE people SET totp_step = ${String(step)}
    WHERE id = ${id} AND (totp_step IS NULL OR totp_step::bigint < ${step})`;
  return used.count > 0;
}

/**
 * Records a failed sign-in. The address is in the entry only if it has an account.
 *
 * @param reason undefined: wrong credentials
 */
export function recordFailedSignIn(
  sql: Database,
  personId: string | null,
  reason?: string,
): Promise<void> {
  return sql.begin((transaction) =>
    recordAct(transaction, {
      organizationId: null,
      action: "session.rejected",
      object: { type: "person", id: personId },
      ...(reason !== undefined && { after: { reason } }),
    }),
  );
}

/** Records that an operator has created a link for a new password of a person. */
export function recordPasswordLink(sql: DatabaseTransaction, personId: string): Promise<void> {
  return recordAct(sql, {
    organizationId: null,
    action: "person.password_link_created",
    object: { type: "person", id: personId },
  });
}

export interface AccountLink {
  readonly tokenHash: string;
  readonly purpose: "first_operator" | "password";
  readonly personId: string | null;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
}

/** Inserts a link. Earlier links of the purpose and person no longer work. */
export async function insertAccountLink(
  sql: DatabaseTransaction,
  { tokenHash, purpose, personId, createdAtMs, expiresAtMs }: AccountLink,
): Promise<void> {
  await sql`DELETE FROM account_links
    WHERE purpose = ${purpose} AND person_id IS NOT DISTINCT FROM ${personId} AND used_at IS NULL`;
  await sql`INSERT INTO account_links (token_hash, purpose, person_id, created_at, expires_at)
    VALUES (${tokenHash}, ${purpose}, ${personId}, ${new Date(createdAtMs)}, ${new Date(expiresAtMs)})`;
}

/** Uses a link up. Returns undefined if there is none, or if it was used or has expired. */
export async function useAccountLink(
  sql: DatabaseTransaction,
  tokenHash: string,
  purpose: AccountLink["purpose"],
  nowMs: number,
): Promise<{ readonly personId: string | null } | undefined> {
  const [row] = await sql<{ person_id: string | null }[]>`
    UPDATE account_links SET used_at = ${new Date(nowMs)}
    WHERE token_hash = ${tokenHash} AND purpose = ${purpose} AND used_at IS NULL
      AND expires_at > ${new Date(nowMs)}
    RETURNING person_id`;
  return row && { personId: row.person_id };
}

/** Returns true if the gateway has an operator with an account. */
export async function hasOperatorPerson(sql: Database | DatabaseTransaction): Promise<boolean> {
  const [row] = await sql<{ found: boolean }[]>`
    SELECT EXISTS (SELECT 1 FROM people WHERE operator_role = 'operator') AS found`;
  return row!.found;
}

/**
 * Gives a person a role of operators, or with null takes it away. Returns false if the gateway would have no operator
 * left with an account.
 */
export function setOperatorRole(
  sql: Database,
  id: string,
  role: OperatorRole | null,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    await transaction`SELECT pg_advisory_xact_lock(hashtextextended('first_operator', 0))`;
    const operators = await transaction<{ id: string }[]>`
      SELECT id FROM people WHERE operator_role = 'operator' LIMIT 2`;
    const isLast = operators.length === 1 && operators[0]!.id === id;
    if (role !== "operator" && isLast) return false;
    await transaction`
      UPDATE people SET operator_role = ${role}, operator_provider_id = NULL WHERE id = ${id}`;
    return true;
  });
}

/** Lists people with a role of operators, by address. */
export async function listOperatorPeople(sql: Database): Promise<Person[]> {
  const rows = await sql<RowOf<typeof people>[]>`
    SELECT * FROM people WHERE operator_role IS NOT NULL ORDER BY lower(email)`;
  return rows.map(personOf);
}
