import type { Database } from "../client.ts";
import type { InstanceIdentity } from "../ledger/commit-batch.ts";
import type { Settlement } from "../ledger/rows.ts";

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

/** How long an instance counts as alive after its last heartbeat; as instance_lease() has it. */
export const INSTANCE_LEASE_MS = 3_000;

/** A stop in order: nobody has to wait for this instance's heartbeat to grow old. */
export async function leave(sql: Database, instance: InstanceIdentity): Promise<void> {
  await sql`UPDATE instances SET alive = false
    WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint`;
}

/** Declares every other instance dead: from here on the fence keeps what they still write out. */
export async function buryOthers(sql: Database, id: string): Promise<void> {
  await sql`UPDATE instances SET alive = false WHERE id <> ${id} AND alive`;
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

/** What dead instances left running, as settlements at their last checkpoints. */
export async function orphanedAttempts(sql: Database, limit: number): Promise<Settlement[]> {
  const rows = await sql<Record<string, never>[]>`
    SELECT a.* FROM attempts a LEFT JOIN instances i ON i.id = a.instance_id AND i.epoch = a.epoch
    WHERE i.id IS NULL OR NOT i.alive ORDER BY a.started_at, a.request_id LIMIT ${limit}`;
  return rows.map((row: Record<string, unknown>) => ({
    requestId: row.request_id as string,
    organizationId: row.organization_id as string,
    keyId: row.key_id as string,
    orgAccount: row.org_account as string,
    dayAccount: row.day_account as string,
    monthAccount: row.month_account as string,
    chargeNano: row.charge_nano as bigint,
    model: row.model as string,
    provider: row.provider as string,
    status: 499,
    promptTokens: Number(row.prompt_tokens),
    cachedPromptTokens: 0,
    completionTokens: Number(row.completion_tokens),
    reasoningTokens: 0,
    estimated: row.estimated as boolean,
    latencyMs: row.latency_ms as number,
    details: row.details as Record<string, unknown> | null,
    description: `Chat completion: ${row.model as string} (cut off)`,
    hasAttempt: true,
  }));
}

/** Calls of dead instances that never had a result free their idempotency keys. */
export async function freeOrphanedIdempotencyKeys(sql: Database): Promise<void> {
  await sql`DELETE FROM idempotency_records r WHERE r.status IS NULL AND NOT EXISTS (
    SELECT 1 FROM instances i WHERE i.id = r.instance_id AND i.epoch = r.epoch AND i.alive)`;
}

/** Forgets instances that died long ago and left nothing. */
export async function removeDeadInstances(sql: Database): Promise<void> {
  await sql`DELETE FROM instances i WHERE NOT i.alive AND i.heartbeat_at < clock_timestamp() - interval '1 day'
    AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.instance_id = i.id)`;
}
