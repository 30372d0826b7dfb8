import type { Database } from "../client.ts";
import type { InstanceIdentity } from "../ledger/commit-batch.ts";

/** Held for its life, on a connection of its own, by the gateway that is alone on a database. */
export const ALONE_LOCK = 7_203_114_502;

/** True where this session now holds the lock of the only gateway. Death gives it up, a pause keeps it. */
export async function takeAloneLock(sql: Database): Promise<boolean> {
  const [row] = await sql<
    { taken: boolean }[]
  >`SELECT pg_try_advisory_lock(${ALONE_LOCK}) AS taken`;
  return row!.taken;
}

/**
 * True where this session holds the lock, taking it where it was lost: a restart of the database ends the
 * session that held it, and the driver then goes on with another one.
 */
export async function keepAloneLock(sql: Database): Promise<boolean> {
  const [row] = await sql<{ is_held: boolean }[]>`
    SELECT EXISTS (
      SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted
        AND (classid::bigint << 32) + objid::bigint = ${ALONE_LOCK}::bigint
    ) AS is_held`;
  return row!.is_held || takeAloneLock(sql);
}

/*
 * An instance is declared dead under FOR UPDATE of its row: transactions that have passed the fence hold
 * that row by a key share, so none of them is under way any more, and none passes from then on.
 */

/** A stop in order: nobody has to wait for this instance's heartbeat to grow old. */
export async function leave(sql: Database, instance: InstanceIdentity): Promise<void> {
  await sql`UPDATE instances SET alive = false WHERE id = (SELECT id FROM instances
    WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint FOR UPDATE)`;
}

/** Declares every other instance dead: for one that is known to be the only one. */
export async function buryOthers(sql: Database, id: string): Promise<void> {
  await sql`UPDATE instances SET alive = false WHERE id IN (
    SELECT id FROM instances WHERE id <> ${id} AND alive ORDER BY id FOR UPDATE)`;
}

export async function insertInstance(sql: Database, instance: InstanceIdentity): Promise<void> {
  await sql`INSERT INTO instances (id, epoch) VALUES (${instance.id}, ${instance.epoch.toString()}::bigint)`;
}

/** False where this instance was declared dead. */
export async function heartbeat(sql: Database, instance: InstanceIdentity): Promise<boolean> {
  const beaten = await sql`UPDATE instances SET heartbeat_at = clock_timestamp()
    WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint AND alive`;
  return beaten.count > 0;
}

/** Calls of dead instances that never had a result free their idempotency keys. */
export async function freeOrphanedIdempotencyKeys(sql: Database): Promise<void> {
  await sql`DELETE FROM idempotency_records r WHERE r.status IS NULL AND NOT EXISTS (
    SELECT 1 FROM instances i WHERE i.id = r.instance_id AND i.epoch = r.epoch AND i.alive)`;
}

/** Forgets instances that died long ago and left nothing. */
export async function removeDeadInstances(sql: Database): Promise<void> {
  await sql`DELETE FROM instances i WHERE NOT i.alive AND i.heartbeat_at < clock_timestamp() - interval '1 day'
    AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.instance_id = i.id)
    AND NOT EXISTS (SELECT 1 FROM holds h WHERE h.instance_id = i.id)`;
}
