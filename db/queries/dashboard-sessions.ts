import type { Database, DatabaseTransaction, Query, SqlFragment } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { dashboardSessions } from "../schema/dashboard.ts";
import { recordAct } from "./audit-log.ts";

export type SessionRecord = RecordOf<typeof dashboardSessions>;
export type SessionSubject = NonNullable<SessionRecord["subject"]>;

const sessionRecord = recordReader(dashboardSessions);

/** Largest number of sessions of a key. Above it the oldest end. */
const MAX_SESSIONS_OF_KEY = 50;
const REMOVED_AT_ONCE = 1_000;

/** Object of the audit entries. The token and values derived from it stay out of the audit log. */
const SESSION = { type: "session", id: null };

/**
 * Inserts a session, and removes those that ended before `endedBeforeMs` or exceed the number that a key may have.
 */
export async function insertSession(
  sql: Database,
  organizationId: string | null,
  session: Omit<SessionRecord, "lastUsedAtMs" | "viewedOrganizationId">,
  endedBeforeMs: number,
): Promise<void> {
  const createdAt = new Date(session.createdAtMs);
  await sql.begin(async (transaction) => {
    await transaction`
      INSERT INTO dashboard_sessions
        (token_hash, kind, key_id, subject, person_id, created_at, last_used_at)
      VALUES (${session.tokenHash}, ${session.kind}, ${session.keyId},
        ${session.subject && JSON.stringify(session.subject)}::text::jsonb, ${session.personId},
        ${createdAt}, ${createdAt})`;
    await recordAct(transaction, { organizationId, action: "session.started", object: SESSION });
    // Other transactions remove sessions at the same time. This one skips the sessions that they have locked.
    await transaction`
      DELETE FROM dashboard_sessions WHERE token_hash IN (
        SELECT token_hash FROM dashboard_sessions WHERE created_at < ${new Date(endedBeforeMs)}
        ORDER BY created_at LIMIT ${REMOVED_AT_ONCE} FOR UPDATE SKIP LOCKED)`;
    await transaction`
      DELETE FROM dashboard_sessions WHERE token_hash IN (
        SELECT token_hash FROM dashboard_sessions WHERE key_id = ${session.keyId}
        ORDER BY created_at DESC OFFSET ${MAX_SESSIONS_OF_KEY} FOR UPDATE SKIP LOCKED)`;
  });
}

export function findSession(tokenHash: string): Query<SessionRecord | undefined> {
  return {
    name: "dashboard-session-find",
    tables: ["dashboard_sessions"],
    async run(sql) {
      const [row] = await sql<RowOf<typeof dashboardSessions>[]>`
        SELECT * FROM dashboard_sessions
        WHERE token_hash = ${tokenHash}`;
      return row && sessionRecord(row);
    },
  };
}

export async function noteSessionUse(
  sql: Database,
  tokenHash: string,
  nowMs: number,
): Promise<void> {
  await sql`UPDATE dashboard_sessions SET last_used_at = ${new Date(nowMs)}
    WHERE token_hash = ${tokenHash} AND last_used_at < ${new Date(nowMs)}`;
}

export async function deleteSession(
  sql: Database,
  organizationId: string | null,
  tokenHash: string,
): Promise<void> {
  await sql.begin(async (transaction) => {
    const [deleted] = await transaction<{ viewed_organization_id: string | null }[]>`
      DELETE FROM dashboard_sessions WHERE token_hash = ${tokenHash}
      RETURNING viewed_organization_id`;
    if (deleted === undefined) return;
    const viewedId = deleted.viewed_organization_id;
    if (viewedId !== null) await recordView(transaction, "session.view_ended", viewedId);
    await recordAct(transaction, { organizationId, action: "session.ended", object: SESSION });
  });
}

interface ViewChange {
  readonly tokenHash: string;
  readonly newTokenHash: string;
  /** The organization that the operator's session views from now on. Null: none, the view ends. */
  readonly organizationId: string | null;
}

/**
 * Begins or ends the view of an organization by an operator's session, which gets another token. The entry is in the
 * audit log of the organization. Returns false if the session has ended, or was changed in the meantime.
 */
export async function changeView(
  sql: Database,
  { tokenHash, newTokenHash, organizationId }: ViewChange,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const [before] = await transaction<{ viewed_organization_id: string | null }[]>`
      SELECT viewed_organization_id FROM dashboard_sessions
      WHERE token_hash = ${tokenHash} AND kind = 'operator'
        AND (viewed_organization_id IS NULL) = ${organizationId !== null}
      FOR UPDATE`;
    if (before === undefined) return false;
    await transaction`
      UPDATE dashboard_sessions
      SET token_hash = ${newTokenHash}, viewed_organization_id = ${organizationId}
      WHERE token_hash = ${tokenHash}`;
    const viewedId = before.viewed_organization_id;
    if (viewedId !== null) await recordView(transaction, "session.view_ended", viewedId);
    if (organizationId !== null) {
      await recordView(transaction, "session.view_started", organizationId);
    }
    return true;
  });
}

function recordView(
  transaction: DatabaseTransaction,
  action: "session.view_started" | "session.view_ended",
  organizationId: string,
): Promise<void> {
  return recordAct(transaction, { organizationId, action, object: SESSION });
}

/** A key of an organization that can sign in. */
export interface SignInKey {
  readonly id: string;
  readonly name: string;
  readonly keyPrefix: string;
  readonly isActive: boolean;
  readonly expiresAtMs: number | null;
  readonly createdAtMs: number;
  /** Number of open sessions. */
  readonly sessions: number;
  /** Latest use of its open sessions. */
  readonly lastSeenAtMs: number | null;
}

/** Times after which sessions end by themselves. */
export interface SessionBounds {
  readonly createdAfterMs: number;
  readonly usedAfterMs: number;
}

const MAX_SIGN_IN_KEYS = 200;

/** Lists keys that can sign in, newest first. */
export async function listSignInKeys(
  sql: Database,
  organizationId: string,
  { createdAfterMs, usedAfterMs }: SessionBounds,
): Promise<SignInKey[]> {
  const rows = await sql<
    {
      id: string;
      name: string;
      key_prefix: string;
      is_active: boolean;
      expires_at: Date | null;
      created_at: Date;
      sessions: number;
      last_seen_at: Date | null;
    }[]
  >`
    SELECT k.id, k.name, k.key_prefix, k.is_active, k.expires_at, k.created_at,
      s.sessions, s.last_seen_at
    FROM (
      SELECT * FROM api_keys
      WHERE organization_id = ${organizationId} AND kind = 'management' AND deleted_at IS NULL
      ORDER BY created_at DESC, id DESC LIMIT ${MAX_SIGN_IN_KEYS}
    ) k
    CROSS JOIN LATERAL (
      SELECT count(*)::integer AS sessions, max(last_used_at) AS last_seen_at
      FROM dashboard_sessions
      WHERE key_id = k.id AND created_at > ${new Date(createdAfterMs)}
        AND last_used_at > ${new Date(usedAfterMs)}
    ) s
    ORDER BY k.created_at DESC, k.id DESC`;
  return rows.map((row) => ({
    id: row.id,
    name: row.name,
    keyPrefix: row.key_prefix,
    isActive: row.is_active,
    expiresAtMs: row.expires_at?.getTime() ?? null,
    createdAtMs: row.created_at.getTime(),
    sessions: row.sessions,
    lastSeenAtMs: row.last_seen_at?.getTime() ?? null,
  }));
}

/** The access rules for people of one organization, as the setting states them. */
export interface SubjectRules {
  readonly issuer: string;
  readonly rules: readonly string[];
}

/** A person who has signed in through the identity provider and has open sessions. */
export interface SignedInSubject {
  readonly id: string;
  readonly name: string;
  readonly sessions: number;
  readonly lastSeenAtMs: number;
}

const MAX_SUBJECTS = 200;

/** Lists signed-in people. Those seen last come first. */
export async function listSignedInSubjects(
  sql: Database,
  { issuer, rules }: SubjectRules,
  { createdAfterMs, usedAfterMs }: SessionBounds,
): Promise<SignedInSubject[]> {
  const rows = await sql<{ id: string; name: string; sessions: number; last_seen_at: Date }[]>`
    SELECT key_id AS id, (array_agg(subject->>'name' ORDER BY created_at DESC))[1] AS name,
      count(*)::integer AS sessions, max(last_used_at) AS last_seen_at
    FROM dashboard_sessions
    WHERE kind = 'organization' AND ${ofRules(sql, { issuer, rules })}
      AND created_at > ${new Date(createdAfterMs)} AND last_used_at > ${new Date(usedAfterMs)}
    GROUP BY key_id ORDER BY max(last_used_at) DESC, key_id LIMIT ${MAX_SUBJECTS}`;
  return rows.map((row) => ({
    id: row.id,
    name: row.name,
    sessions: row.sessions,
    lastSeenAtMs: row.last_seen_at.getTime(),
  }));
}

interface Ending extends SubjectRules {
  readonly organizationId: string;
  /** Id of the management key, or of the person who signed in through the identity provider. */
  readonly holderId: string;
  /** The requesting session, which stays. */
  readonly currentHash: string;
}

/**
 * Returns the number of ended sessions, or undefined if the organization has no such key or person.
 */
export async function deleteSessionsOf(
  sql: Database,
  { organizationId, holderId, currentHash, ...rules }: Ending,
): Promise<number | undefined> {
  return sql.begin(async (transaction) => {
    const [key] = await transaction`
      SELECT id FROM api_keys WHERE id = ${holderId} AND organization_id = ${organizationId}
        AND kind = 'management' AND deleted_at IS NULL`;
    const theirs = transaction`kind = 'organization' AND key_id = ${holderId}
      AND ${key === undefined ? ofRules(sql, rules) : transaction`subject IS NULL`}`;
    const deleted = await transaction`
      DELETE FROM dashboard_sessions WHERE ${theirs} AND token_hash <> ${currentHash}`;
    if (deleted.count > 0) {
      const after = { holder: holderId, sessions: deleted.count };
      await recordAct(transaction, {
        ...{ organizationId, action: "session.ended", object: SESSION, after },
      });
      return deleted.count;
    }
    const [left] = await transaction`SELECT 1 FROM dashboard_sessions WHERE ${theirs} LIMIT 1`;
    return key === undefined && left === undefined ? undefined : 0;
  });
}

function ofRules(sql: Database, { issuer, rules }: SubjectRules): SqlFragment {
  return sql`subject->>'issuer' = ${issuer}
    AND subject->>'rule' = ANY(${sql.array([...rules])}::text[])`;
}

/** Returns the token hashes of the sessions that no longer exist. */
export function missingSessions(tokenHashes: readonly string[]): Query<ReadonlySet<string>> {
  return {
    name: "dashboard-sessions-missing",
    tables: ["dashboard_sessions"],
    async run(sql) {
      const rows = await sql<{ token_hash: string }[]>`
        SELECT token_hash FROM dashboard_sessions
        WHERE token_hash = ANY(${sql.array([...tokenHashes])}::text[])`;
      const found = new Set(rows.map((row) => row.token_hash));
      return new Set(tokenHashes.filter((hash) => !found.has(hash)));
    },
  };
}
