import type { AlertKind } from "../../src/lib/alerts.ts";
import { MAX_ALERT_MESSAGES_AN_HOUR } from "../../src/lib/alerts.ts";
import type { Role } from "../../src/lib/roles.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import type { RowOf } from "../rows.ts";
import type { alertChannels, alerts } from "../schema/alerts.ts";

/** Kind of the leases of channels. */
export const ALERT_CHANNEL = "alert-channel";

/** Numbers new alerts, and makes their channels due (function number_alerts). Returns their number. */
export async function numberAlerts(
  sql: Database,
  most: number,
  selfOnlyRoles: readonly Role[],
): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    SELECT number_alerts(${most}, ${sql.array([...selfOnlyRoles])}::text[]) AS count`;
  return row!.count;
}

/** Finds channels that are due and have no live owner, the longest due first, with their organizations. */
export async function findDueAlertChannels(
  sql: Database,
  limit: number,
  { mostOfOne, without }: { readonly mostOfOne: number; readonly without: readonly string[] },
): Promise<Map<string, string>> {
  const rows = await sql<{ channel_id: string; organization_id: string }[]>`
    SELECT d.channel_id, d.organization_id FROM (
      SELECT s.channel_id, s.organization_id, s.due_at,
        row_number() OVER (PARTITION BY s.organization_id ORDER BY s.due_at) AS turn
      FROM alert_states s WHERE s.due_at <= clock_timestamp()
        AND s.organization_id <> ALL (${sql.array([...without])}::text[])
        AND NOT EXISTS (SELECT 1 FROM owned_actors a WHERE a.kind = ${ALERT_CHANNEL} AND a.id = s.channel_id)
    ) d WHERE d.turn <= ${mostOfOne} ORDER BY d.turn, d.due_at LIMIT ${limit}`;
  return new Map(rows.map((row) => [row.channel_id, row.organization_id]));
}

/** A channel as its owner sends to it. */
export interface SendingChannel
  extends Pick<
    RowOf<typeof alertChannels>,
    "id" | "type" | "alerts" | "enabled" | "version" | "sealed_url" | "host"
  > {
  readonly organization_id: string;
  readonly organization_name: string;
  readonly member_id: string | null;
  /** The last alert that was sent or skipped. */
  readonly sequence: bigint;
  readonly failed_attempts: number;
  /** Milliseconds until it may send again. 0: now. */
  readonly pause_ms: number;
  /** Null for a channel of the organization, and for a removed or inactive member. */
  readonly role: Role | null;
  /** The verified address of the member. */
  readonly email: string | null;
}

/** Loads a channel. Returns undefined if it was deleted. */
export async function loadSendingChannel(
  sql: Database,
  id: string,
): Promise<SendingChannel | undefined> {
  const [row] = await sql<SendingChannel[]>`
    SELECT c.id, c.type, c.alerts, c.enabled, c.version, c.sealed_url, c.host, c.organization_id, c.member_id,
      o.name AS organization_name, s.sequence, s.failed_attempts, m.role,
      CASE WHEN p.email_verified_at IS NOT NULL THEN p.email END AS email,
      CASE WHEN s.hour_messages >= ${MAX_ALERT_MESSAGES_AN_HOUR}
        THEN greatest(0, extract(epoch FROM s.hour_started_at + interval '1 hour' - clock_timestamp()) * 1000)
        ELSE 0 END::float8 AS pause_ms
    FROM alert_channels c JOIN alert_states s ON s.channel_id = c.id
    JOIN organizations o ON o.id = c.organization_id
    LEFT JOIN members m ON m.id = c.member_id AND m.is_active AND m.deleted_at IS NULL
    LEFT JOIN people p ON p.id = m.person_id
    WHERE c.id = ${id}`;
  return row;
}

/** Most alerts that one message covers. */
const MAX_COVERED = 10_000;

export interface AlertFilter {
  readonly organizationId: string;
  readonly after: bigint;
  readonly kinds: readonly AlertKind[];
  /** Only alerts about this member's keys and budget. */
  readonly memberId: string | undefined;
}

export interface PendingAlerts {
  /** The newest ones, oldest first. */
  readonly shown: readonly PendingAlert[];
  readonly counts: ReadonlyMap<AlertKind, number>;
  /** Number of the last alert that was looked at. Undefined if there is none. */
  readonly last: bigint | undefined;
}

export type PendingAlert = Pick<RowOf<typeof alerts>, "type" | "data" | "created_at"> & {
  readonly kind: AlertKind;
  readonly sequence: bigint;
};

/** Reads the alerts that wait for a channel: all are counted, and the newest are returned. */
export async function pendingAlerts(
  sql: Database,
  filter: AlertFilter,
  mostShown: number,
): Promise<PendingAlerts> {
  const { organizationId, kinds, memberId = null } = filter;
  const after = filter.after.toString();
  const isWanted = sql`(kind = ANY (${sql.array([...kinds])}::text[])
    AND (${memberId}::text IS NULL OR member_id = ${memberId}))`;
  const counted = await sql<{ kind: AlertKind; wanted: number; last: bigint }[]>`
    SELECT kind, count(*) FILTER (WHERE is_wanted)::int AS wanted, max(sequence) AS last FROM (
      SELECT kind, sequence, ${isWanted} AS is_wanted FROM alerts
      WHERE organization_id = ${organizationId} AND sequence > ${after}::bigint
      ORDER BY sequence LIMIT ${MAX_COVERED}
    ) waiting GROUP BY kind`;
  const last = counted.reduce<bigint | undefined>(
    (highest, row) => (highest === undefined || row.last > highest ? row.last : highest),
    undefined,
  );
  const counts = new Map(
    counted.filter(({ wanted }) => wanted > 0).map(({ kind, wanted }) => [kind, wanted]),
  );
  if (last === undefined || counts.size === 0) return { shown: [], counts, last };
  const shown = await sql<PendingAlert[]>`
    SELECT kind, sequence, type, data, created_at FROM alerts
    WHERE organization_id = ${organizationId} AND sequence > ${after}::bigint
      AND sequence <= ${last.toString()}::bigint AND ${isWanted}
    ORDER BY sequence DESC LIMIT ${mostShown}`;
  return { shown: shown.toReversed(), counts, last };
}

/*
 * The owner's writes. Each locks the row of the channel first: number_alerts makes the channel due under the same lock.
 */

/** Records that alerts up to a number were sent, or that none of them concerns the channel. */
export async function noteAlertsSent(
  sql: DatabaseTransaction,
  id: string,
  { upTo, isMessage }: { readonly upTo: bigint; readonly isMessage: boolean },
): Promise<void> {
  await lockState(sql, id);
  await sql`
    UPDATE alert_states s SET sequence = greatest(sequence, ${upTo.toString()}::bigint),
      due_at = ${isLeft(sql, upTo)}
      ${
        isMessage
          ? sql`, failed_attempts = 0, last_error = NULL, last_sent_at = clock_timestamp(),
              hour_started_at = CASE WHEN ${isSameHour(sql)} THEN hour_started_at ELSE clock_timestamp() END,
              hour_messages = CASE WHEN ${isSameHour(sql)} THEN hour_messages + 1 ELSE 1 END`
          : sql``
      }
    WHERE channel_id = ${id}`;
}

const isSameHour = (sql: DatabaseTransaction) =>
  sql`(hour_started_at > clock_timestamp() - interval '1 hour')`;

const isLeft = (sql: DatabaseTransaction, upTo: bigint) => sql`CASE WHEN EXISTS (
  SELECT 1 FROM alerts a WHERE a.organization_id = s.organization_id AND a.sequence > ${upTo.toString()}::bigint)
  THEN clock_timestamp() END`;

/** Records that a disabled channel has nothing to do. Does nothing if it was enabled in the meantime. */
export async function noteAlertsIdle(sql: DatabaseTransaction, id: string): Promise<void> {
  await lockState(sql, id);
  await sql`UPDATE alert_states s SET due_at = NULL WHERE channel_id = ${id}
    AND NOT EXISTS (SELECT 1 FROM alert_channels c WHERE c.id = s.channel_id AND c.enabled)`;
}

/** Records that the channel sends again after this time. */
export async function postponeAlerts(
  sql: DatabaseTransaction,
  id: string,
  delayMs: number,
): Promise<void> {
  await sql`UPDATE alert_states
    SET due_at = clock_timestamp() + ${delayMs}::float8 * interval '1 millisecond' WHERE channel_id = ${id}`;
}

export interface FailedAlert {
  readonly error: string;
  /** Milliseconds until the next attempt. Null: the channel is disabled, unless it has changed since the version. */
  readonly delayMs: number | null;
  readonly version: bigint;
}

/** Records a failed attempt. A channel that has changed in the meantime tries again immediately. */
export async function noteAlertsFailed(
  sql: DatabaseTransaction,
  id: string,
  { error, delayMs, version }: FailedAlert,
): Promise<void> {
  const [current] = await sql<{ is_same: boolean }[]>`
    SELECT version = ${version.toString()}::bigint AS is_same FROM alert_channels WHERE id = ${id}
    FOR NO KEY UPDATE`;
  const isSame = current?.is_same === true;
  if (isSame && delayMs === null) {
    await sql`UPDATE alert_channels SET enabled = false, disabled_at = clock_timestamp(), disabled_by = 'failures',
        version = version + 1 WHERE id = ${id}`;
  }
  await sql`UPDATE alert_states SET last_error = ${error}, last_failed_at = clock_timestamp(),
      failed_attempts = CASE WHEN ${isSame} THEN failed_attempts + 1 ELSE 0 END,
      due_at = CASE WHEN NOT ${isSame} THEN clock_timestamp()
        ELSE clock_timestamp() + ${delayMs}::float8 * interval '1 millisecond' END
    WHERE channel_id = ${id}`;
}

async function lockState(sql: DatabaseTransaction, id: string): Promise<void> {
  await sql`SELECT 1 FROM alert_states WHERE channel_id = ${id} FOR NO KEY UPDATE`;
}

const REMOVAL_BATCH = 1_000;

/** Removes alerts that are older than three days, whether they were sent or not. Returns true if there may be more. */
export async function removeOldAlerts(sql: Database): Promise<boolean> {
  const removed = await sql`DELETE FROM alerts WHERE id IN (
    SELECT id FROM alerts WHERE created_at < clock_timestamp() - interval '3 days'
    ORDER BY created_at LIMIT ${REMOVAL_BATCH})`;
  return removed.count === REMOVAL_BATCH;
}

export interface NamedObjects {
  readonly keys: readonly string[];
  readonly teams: readonly string[];
  readonly members: readonly string[];
}

/** Returns the names of an organization's keys, teams and members by their ids. */
export async function namesOf(
  sql: Database,
  organizationId: string,
  { keys, teams, members }: NamedObjects,
): Promise<ReadonlyMap<string, string>> {
  const rows = await sql<{ id: string; name: string }[]>`
    SELECT id, name FROM api_keys
    WHERE id = ANY (${sql.array([...keys])}::text[]) AND organization_id = ${organizationId}
    UNION ALL SELECT id, name FROM teams
    WHERE id = ANY (${sql.array([...teams])}::text[]) AND organization_id = ${organizationId}
    UNION ALL SELECT m.id, p.name FROM members m JOIN people p ON p.id = m.person_id
    WHERE m.id = ANY (${sql.array([...members])}::text[]) AND m.organization_id = ${organizationId}`;
  return new Map(rows.map(({ id, name }) => [id, name]));
}
