import type { Database, DatabaseTransaction } from "../client.ts";
import { orgAccountId } from "../ledger/rows.ts";
import { GATEWAY_LOCK } from "./instances.ts";

/** Returns milliseconds since the Unix epoch, by the database's clock. */
export async function readDatabaseTime(sql: Database): Promise<number> {
  const [row] = await sql<{ now_ms: number }[]>`
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now_ms`;
  return row!.now_ms;
}

interface ServerVersion {
  readonly major: number;
  /** The server's own text, such as "18.4" or "15.19 (Debian 15.19-0+deb12u1)". */
  readonly text: string;
}

export async function readServerVersion(
  sql: Database | DatabaseTransaction,
): Promise<ServerVersion> {
  const [row] = await sql<{ number: number; text: string }[]>`
    SELECT current_setting('server_version_num')::int AS number,
      current_setting('server_version') AS text`;
  return { major: Math.floor(row!.number / 10_000), text: row!.text };
}

/** Key of the advisory lock. No other user of the database has it. */
const GUEST_LOCK = 7_203_114_509;

/**
 * Marks this connection as one that uses a server which another command may own. Returns false if the owner has begun
 * to stop the server: then no work may begin on it.
 */
export async function joinAsGuest(sql: Database): Promise<boolean> {
  const [row] = await sql<{ joined: boolean }[]>`
    SELECT pg_try_advisory_lock_shared(${GUEST_LOCK}) AS joined`;
  return row!.joined;
}

/**
 * Returns true if no other connection is left. After the first call that finds no guest, none can join.
 */
export async function isOnlyConnection(sql: Database): Promise<boolean> {
  // Each call takes the lock again, which does no harm: it ends with the connection.
  const [lock] = await sql<{ closed: boolean }[]>`
    SELECT pg_try_advisory_lock(${GUEST_LOCK}) AS closed`;
  if (!lock!.closed) return false;
  const [row] = await sql<{ others: bigint }[]>`
    SELECT count(*) AS others FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`;
  return Number(row!.others) === 0;
}

/**
 * A gateway sends a heartbeat several times a second. Without one for longer, it is not running.
 */
const SILENCE_SECONDS = 3;

/**
 * Returns true if no gateway runs on the database, and none can start before this transaction ends. The lock alone does
 * not prove it: a gateway whose server was restarted continues without it. A silent gateway is declared dead: if it was
 * only unreachable, it would return with holds on the amounts that are posted here.
 */
export async function claimRest(sql: DatabaseTransaction): Promise<boolean> {
  const [row] = await sql<{ is_locked: boolean }[]>`
    SELECT pg_try_advisory_xact_lock(${GATEWAY_LOCK}) AS is_locked`;
  if (!row!.is_locked || (await isGatewayRunning(sql))) return false;
  await sql`UPDATE instances SET alive = false WHERE id IN (
    SELECT id FROM instances WHERE alive AND NOT ${hasRecentHeartbeat(sql)} ORDER BY id FOR UPDATE)`;
  // An instance whose heartbeat arrived while its row was locked stays alive.
  return !(await isGatewayRunning(sql));
}

/** Returns true if a gateway runs on the database, judged by heartbeats of the last seconds. */
async function isGatewayRunning(sql: Database | DatabaseTransaction): Promise<boolean> {
  const [row] = await sql<{ is_heard: boolean }[]>`SELECT EXISTS (
    SELECT 1 FROM instances WHERE alive AND ${hasRecentHeartbeat(sql)}
  ) AS is_heard`;
  return row!.is_heard;
}

/**
 * Returns the last heartbeat of the gateways that are not declared dead, or undefined if there are none.
 */
export async function lastHeartbeat(
  sql: Database,
): Promise<{ readonly at: string; readonly secondsAgo: number } | undefined> {
  const [row] = await sql<{ at: string | null; seconds_ago: number | null }[]>`
    SELECT max(heartbeat_at)::text AS at,
      extract(epoch FROM clock_timestamp() - max(heartbeat_at))::float8 AS seconds_ago
    FROM instances WHERE alive`;
  return row?.at === null || row === undefined
    ? undefined
    : { at: row.at, secondsAgo: row.seconds_ago ?? 0 };
}

/**
 * No heartbeat can arrive before the server is up: a gateway that waits for it may send one a moment later.
 */
export function hasRecentHeartbeat(sql: Database | DatabaseTransaction) {
  return sql`greatest(heartbeat_at, pg_postmaster_start_time())
    > clock_timestamp() - make_interval(secs => ${SILENCE_SECONDS})`;
}

export interface BalanceAtRest {
  /** Balance minus holds. Below zero if credit is used. */
  readonly unheldNano: bigint;
  /** Nano-USD. Null: no limit. */
  readonly creditLimitNano: bigint | null;
}

/**
 * Returns the part of a balance that is not held while no gateway runs: all but the holds of a dead gateway's
 * unfinished streams, and of jobs that continue with the next one. Locks the balance. Returns undefined for an unknown
 * organization.
 */
export async function balanceAtRest(
  sql: DatabaseTransaction,
  organizationId: string,
): Promise<BalanceAtRest | undefined> {
  const [account] = await sql<
    { credit_nano: bigint; posted_nano: bigint; credit_limit_nano: bigint | null }[]
  >`SELECT credit_nano, posted_nano, credit_limit_nano FROM accounts
    WHERE id = ${orgAccountId(organizationId)} FOR UPDATE`;
  const [held] = await sql<{ nano: string }[]>`
    SELECT coalesce(sum(hold_nano), 0)::text AS nano FROM (
      SELECT hold_nano FROM holds WHERE org_account = ${orgAccountId(organizationId)}
      UNION ALL
      SELECT hold_nano FROM attempts a WHERE organization_id = ${organizationId}
        AND NOT EXISTS (SELECT 1 FROM holds h WHERE h.id = a.request_id)
    ) AS all_holds`;
  return (
    account && {
      unheldNano: account.credit_nano - account.posted_nano - BigInt(held!.nano),
      creditLimitNano: account.credit_limit_nano,
    }
  );
}
