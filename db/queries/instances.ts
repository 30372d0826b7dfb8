import type { Database } from "../client.ts";
import type { InstanceIdentity } from "../ledger/settle-batch.ts";
import type { RowOf } from "../rows.ts";
import type { instances } from "../schema/instances.ts";

/**
 * How long an instance counts as alive after its last heartbeat, in milliseconds. Equals instance_lease().
 */
export const INSTANCE_LEASE_MS = 3_000;

/** State of this instance and of the others, as a heartbeat returns it. */
interface Pulse {
  /** False if this instance was declared dead. */
  readonly isAlive: boolean;
  /** Ids of all live instances, this one included, in an order that is the same everywhere. */
  readonly liveIds: readonly string[];
  /** True if another instance's lease has ended, or if it has died and left work to settle. */
  readonly hasOrphanedWork: boolean;
}

export async function insertInstance(
  sql: Database,
  instance: InstanceIdentity,
  isSingleNode = false,
): Promise<void> {
  await sql`INSERT INTO instances (id, epoch, is_alone)
    VALUES (${instance.id}, ${instance.epoch.toString()}::bigint, ${isSingleNode})`;
}

export async function heartbeat(sql: Database, instance: InstanceIdentity): Promise<Pulse> {
  const [row] = await sql<{ is_alive: boolean; live_ids: string[]; has_orphaned_work: boolean }[]>`
    WITH beat AS (
      UPDATE instances SET heartbeat_at = clock_timestamp()
      WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint AND alive
      RETURNING id)
    SELECT EXISTS (SELECT 1 FROM beat) AS is_alive,
      ARRAY(SELECT id FROM beat UNION SELECT id FROM live_instances ORDER BY id) AS live_ids,
      EXISTS (SELECT 1 FROM instances WHERE id <> ${instance.id} AND NOT is_settled
        AND (NOT alive OR heartbeat_at <= clock_timestamp() - instance_lease())) AS has_orphaned_work`;
  return {
    isAlive: row!.is_alive,
    liveIds: row!.live_ids,
    hasOrphanedWork: row!.has_orphaned_work,
  };
}

/** Records the version of the gateway that runs as this instance. */
export async function noteVersion(
  sql: Database,
  instance: InstanceIdentity,
  version: string,
): Promise<void> {
  await sql`UPDATE instances SET version = ${version}
    WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint`;
}

/** Records that this instance takes no new connections and finishes its requests. */
export async function noteDraining(sql: Database, instance: InstanceIdentity): Promise<void> {
  await sql`UPDATE instances SET draining_since = coalesce(draining_since, clock_timestamp())
    WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint`;
}

/** A live instance. */
export interface LiveInstance {
  readonly id: string;
  /** Null: 1.0, or not recorded yet. */
  readonly version: string | null;
  readonly startedAtMs: number;
  readonly heartbeatAtMs: number;
  readonly drainingSinceMs: number | null;
}

const MAX_LISTED = 200;

/** Lists live instances, the oldest first. At most 200. */
export async function listInstances(sql: Database): Promise<LiveInstance[]> {
  const rows = await sql<RowOf<typeof instances>[]>`
    SELECT i.* FROM instances i JOIN live_instances USING (id)
    ORDER BY i.started_at, i.id LIMIT ${MAX_LISTED}`;
  return rows.map((row) => ({
    ...{ id: row.id, version: row.version },
    startedAtMs: row.started_at.getTime(),
    heartbeatAtMs: row.heartbeat_at.getTime(),
    drainingSinceMs: row.draining_since?.getTime() ?? null,
  }));
}

/** Sends a heartbeat only. Returns false if this instance was declared dead. */
export async function beat(sql: Database, instance: InstanceIdentity): Promise<boolean> {
  const beaten = await sql`UPDATE instances SET heartbeat_at = clock_timestamp()
    WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint AND alive`;
  return beaten.count > 0;
}

/*
 * An instance is declared dead under FOR UPDATE of its row. Transactions that have passed the fence hold that row by a
 * key share, so none of them still runs, and none passes from then on.
 */

/** Leaves in an orderly stop, so that no instance has to wait for this one's lease to end. */
export async function leave(sql: Database, instance: InstanceIdentity): Promise<void> {
  await sql`UPDATE instances SET alive = false WHERE id = (SELECT id FROM instances
    WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint FOR UPDATE)`;
}

/** Declares every other instance dead. Call it for an instance that is known to be the only one. */
export async function declareOthersDead(sql: Database, id: string): Promise<void> {
  await sql`UPDATE instances SET alive = false WHERE id IN (
    SELECT id FROM instances WHERE id <> ${id} AND alive ORDER BY id FOR UPDATE)`;
}

/**
 * Declares single-node instances dead. Call it for an instance that has entered as one of several, so that none runs as
 * the single node.
 */
export async function markSingleNodesDead(sql: Database): Promise<void> {
  await sql`UPDATE instances SET alive = false WHERE id IN (
    SELECT id FROM instances WHERE is_alone AND alive ORDER BY id FOR UPDATE)`;
}

const MAX_BURIALS = 32;

/**
 * Declares instances dead whose leases have ended, unless another instance is doing so, or this one is itself dead.
 * Returns their ids.
 */
export async function declareSilentDead(
  sql: Database,
  instance: InstanceIdentity,
): Promise<string[]> {
  return sql.begin(async (transaction) => {
    const [self] = await transaction`SELECT 1 FROM instances
      WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint AND alive
      FOR KEY SHARE`;
    if (self === undefined) return [];
    const silent = await transaction<{ id: string }[]>`SELECT id FROM instances
      WHERE id <> ${instance.id} AND alive AND heartbeat_at <= clock_timestamp() - instance_lease()
      ORDER BY id LIMIT ${MAX_BURIALS} FOR UPDATE SKIP LOCKED`;
    const ids = silent.map(({ id }) => id);
    await transaction`UPDATE instances SET alive = false WHERE id = ANY (${sql.array(ids)}::text[])`;
    return ids;
  });
}

/** Releases the idempotency keys of calls of dead instances that have no result. */
export async function freeOrphanedIdempotencyKeys(sql: Database): Promise<void> {
  await sql`DELETE FROM idempotency_records r WHERE r.status IS NULL AND NOT EXISTS (
    SELECT 1 FROM instances i WHERE i.id = r.instance_id AND i.epoch = r.epoch AND i.alive)`;
}

/** Records which dead instances have no work left. */
export async function noteSettled(sql: Database): Promise<void> {
  await sql`UPDATE instances i SET is_settled = true WHERE NOT alive AND NOT is_settled
    AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.instance_id = i.id)
    AND NOT EXISTS (SELECT 1 FROM holds h WHERE h.instance_id = i.id)
    AND NOT EXISTS (SELECT 1 FROM idempotency_records r WHERE r.instance_id = i.id AND r.status IS NULL)
    AND NOT EXISTS (SELECT 1 FROM background_responses b WHERE b.instance_id = i.id
      AND b.state IN ('queued', 'in_progress'))`;
}

/** Removes instances that died long ago and have left nothing. */
export async function removeDeadInstances(sql: Database): Promise<void> {
  await sql`DELETE FROM instances
    WHERE is_settled AND heartbeat_at < clock_timestamp() - interval '1 day'`;
}

/** Time without a heartbeat after which an instance may be dead: it has missed several. */
const SILENCE = "1 second";

/**
 * Returns true if an instance that has missed its heartbeats, or has died, still holds money of the account.
 */
export async function isHeldBySilent(sql: Database, orgAccount: string): Promise<boolean> {
  const [row] = await sql<{ is_held: boolean }[]>`SELECT EXISTS (
    SELECT 1 FROM holds h LEFT JOIN instances i ON i.id = h.instance_id AND i.epoch = h.epoch
    WHERE h.org_account = ${orgAccount} AND h.instance_id IS NOT NULL
      AND (i.id IS NULL OR NOT i.alive OR i.heartbeat_at <= clock_timestamp() - ${SILENCE}::interval)
    ) AS is_held`;
  return row!.is_held;
}

/**
 * Key of the advisory lock that a gateway holds for life over a separate connection: exclusively as the only gateway on
 * a database, shared as one of several instances. Its death releases the lock, a pause does not.
 */
export const GATEWAY_LOCK = 7_203_114_502;

export type DeploymentMode = "single-node" | "clustered";

/** Returns true if this session now holds the lock. */
export async function takeGatewayLock(
  sql: Database,
  deploymentMode: DeploymentMode,
): Promise<boolean> {
  const [row] =
    deploymentMode === "single-node"
      ? await sql<
          { is_locked: boolean }[]
        >`SELECT pg_try_advisory_lock(${GATEWAY_LOCK}) AS is_locked`
      : await sql<
          { is_locked: boolean }[]
        >`SELECT pg_try_advisory_lock_shared(${GATEWAY_LOCK}) AS is_locked`;
  return row!.is_locked;
}

/**
 * Returns true if this session holds the lock, and takes it again if it was lost: a restart of the database ends the
 * session that held it, and the driver then continues with another one. If the server has not noticed yet that the
 * earlier session's client has disconnected, this ends that session and throws: the next check takes the lock. Only
 * this gateway has sessions of this name.
 */
export async function keepGatewayLock(
  sql: Database,
  deploymentMode: DeploymentMode,
): Promise<boolean> {
  const [row] = await sql<{ is_held: boolean }[]>`
    SELECT EXISTS (
      SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted
        AND (classid::bigint << 32) + objid::bigint = ${GATEWAY_LOCK}::bigint
    ) AS is_held`;
  if (row!.is_held || (await takeGatewayLock(sql, deploymentMode))) return true;
  const ended = await sql`SELECT pg_terminate_backend(l.pid)
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database()
      AND (l.classid::bigint << 32) + l.objid::bigint = ${GATEWAY_LOCK}::bigint
      AND a.application_name = current_setting('application_name') AND a.pid <> pg_backend_pid()`;
  if (ended.length === 0) return false;
  throw new Error("an earlier session of this gateway held its lock and is being ended");
}

/** Returns true if an instance can no longer write. Undefined if it is not known here. */
export async function isInstanceDead(sql: Database, id: string): Promise<boolean | undefined> {
  const [row] = await sql<{ alive: boolean }[]>`SELECT alive FROM instances WHERE id = ${id}`;
  return row && !row.alive;
}

/**
 * Returns the ids of the requests that will be charged at a checkpoint if their instance does not charge them.
 */
export async function requestsWithAttempts(
  sql: Database,
  requestIds: readonly string[],
): Promise<ReadonlySet<string>> {
  const rows = await sql<{ request_id: string }[]>`SELECT request_id FROM attempts
    WHERE request_id IN (SELECT jsonb_array_elements_text(${JSON.stringify(requestIds)}::text::jsonb))`;
  return new Set(rows.map((row) => row.request_id));
}
