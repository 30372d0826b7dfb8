import { type Database, type DatabaseTransaction, sqlState } from "../client.ts";
import type { InstanceIdentity } from "../ledger/settle-batch.ts";
import { ALERT_CHANNEL } from "./alert-delivery.ts";
import { BATCH } from "./batches.ts";
import { FINE_TUNING_JOB } from "./fine-tuning-jobs.ts";
import { VECTOR_STORE_FILE } from "./vector-store-files.ts";

/**
 * The right to act for one owned actor. Each new owner, and the same owner again, has a higher epoch.
 */
export interface Lease {
  readonly kind: string;
  readonly id: string;
  readonly epoch: bigint;
}

/** SQLSTATE with which the database rejects an owner that has lost its lease. */
export const LEASE_LOST = "GW002";

/** The lease has another owner, or its instance was declared dead. Nothing was written. */
export class LeaseLostError extends Error {
  readonly code = LEASE_LOST;
  readonly lease: Lease;

  constructor(lease: Lease) {
    super(`the lease of ${lease.kind} ${lease.id} has another owner`);
    this.name = "LeaseLostError";
    this.lease = lease;
  }
}

/**
 * Locks the lease and the instance until the transaction ends. It is the first statement of every transaction of an
 * owner. Throws LeaseLostError if the lease has another owner or the instance was declared dead.
 */
export async function guardLease(
  sql: DatabaseTransaction,
  lease: Lease,
  instance: InstanceIdentity,
): Promise<void> {
  try {
    await sql`SELECT guard_lease(${lease.kind}, ${lease.id}, ${lease.epoch.toString()}::bigint,
      ${instance.id}, ${instance.epoch.toString()}::bigint)`;
  } catch (error) {
    throw sqlState(error) === LEASE_LOST ? new LeaseLostError(lease) : error;
  }
}

/**
 * Claims leases that have no live owner, or that this instance owns already, each with a new epoch. An old heartbeat
 * counts as a death only with `judges`.
 */
export async function claimLeases(
  sql: Database,
  instance: InstanceIdentity,
  kind: string,
  ids: readonly string[],
  judges: boolean,
): Promise<Lease[]> {
  const rows = await sql<{ id: string; epoch: bigint }[]>`
    SELECT id, epoch FROM claim_leases(${kind}, ${sql.array([...ids])}::text[],
      ${instance.id}, ${instance.epoch.toString()}::bigint, ${judges})`;
  return rows.map(({ id, epoch }) => ({ kind, id, epoch }));
}

/**
 * Releases leases. Leases that have another owner stay, and so do all leases of an instance that was declared dead: the
 * lock on its row keeps the instance alive until the commit.
 */
export async function releaseLeases(
  sql: Database,
  instance: InstanceIdentity,
  leases: readonly Lease[],
): Promise<void> {
  await sql`WITH fence AS MATERIALIZED (
      SELECT FROM instances WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint
        AND alive FOR KEY SHARE)
    UPDATE actor_leases l SET instance_id = NULL, instance_epoch = NULL
    FROM fence, unnest(${sql.array(leases.map(({ kind }) => kind))}::text[],
      ${sql.array(leases.map(({ id }) => id))}::text[],
      ${sql.array(leases.map(({ epoch }) => epoch.toString()))}::text[]) AS given (kind, id, epoch)
    WHERE l.kind = given.kind AND l.id = given.id AND l.epoch = given.epoch::bigint
      AND l.instance_id = ${instance.id} AND l.instance_epoch = ${instance.epoch.toString()}::bigint`;
}

/** Returns all leases that this instance owns. */
export async function leasesOf(sql: Database, instance: InstanceIdentity): Promise<Lease[]> {
  const rows = await sql<{ kind: string; id: string; epoch: bigint }[]>`
    SELECT kind, id, epoch FROM actor_leases
    WHERE instance_id = ${instance.id} AND instance_epoch = ${instance.epoch.toString()}::bigint`;
  return rows.map(({ kind, id, epoch }) => ({ kind, id, epoch }));
}

const REMOVAL_BATCH = 1_000;

/**
 * Removes leases without an owner whose actors have no work left. Returns true if there may be more.
 */
export async function removeSpentLeases(sql: Database): Promise<boolean> {
  const removed =
    await sql`DELETE FROM actor_leases l WHERE l.instance_id IS NULL AND (l.kind, l.id) IN (
    SELECT kind, id FROM actor_leases s WHERE s.instance_id IS NULL AND CASE s.kind
      WHEN ${BATCH} THEN NOT EXISTS (SELECT FROM batches WHERE id = s.id AND due_at IS NOT NULL)
      WHEN ${FINE_TUNING_JOB} THEN
        NOT EXISTS (SELECT FROM fine_tuning_jobs WHERE id = s.id AND due_at IS NOT NULL)
      WHEN ${VECTOR_STORE_FILE} THEN
        NOT EXISTS (SELECT FROM vector_store_files WHERE id = s.id AND due_at IS NOT NULL)
      WHEN ${ALERT_CHANNEL} THEN
        NOT EXISTS (SELECT FROM alert_states WHERE channel_id = s.id AND due_at IS NOT NULL)
      ELSE false END
    LIMIT ${REMOVAL_BATCH})`;
  return removed.count === REMOVAL_BATCH;
}
