import type { AttemptRecord, DeliveryStatus } from "../../src/lib/webhook-record.ts";
import type { Database } from "../client.ts";
import type { Effect, StatementEffect } from "../ledger/effects.ts";
import type { InstanceIdentity } from "../ledger/settle-batch.ts";
import type { RowOf } from "../rows.ts";
import type { deliveries } from "../schema/webhooks.ts";
import type { Lease } from "./actor-leases.ts";
import { recordAct } from "./audit-log.ts";
import { recordChange } from "./changes.ts";

export interface ListedDelivery {
  readonly outboxId: bigint;
  readonly eventId: string;
  readonly eventType: string;
  readonly status: DeliveryStatus;
  readonly attempts: readonly AttemptRecord[];
  readonly nextAttemptAtMs: number | null;
  readonly createdAtMs: number;
}

/** Lists deliveries of a webhook, newest first. Returns one more than `limit` if there are more. */
export async function listDeliveries(
  sql: Database,
  page: {
    readonly webhookId: string;
    readonly status: DeliveryStatus | undefined;
    /** The last delivery of the previous page. */
    readonly after: bigint | undefined;
    readonly limit: number;
  },
): Promise<ListedDelivery[]> {
  const after = page.after?.toString();
  const rows = await sql<RowOf<typeof deliveries>[]>`
    SELECT * FROM deliveries WHERE webhook_id = ${page.webhookId}
      ${page.status === undefined ? sql`` : ofStatus(sql, page.status)}
      ${after === undefined ? sql`` : sql`AND outbox_id < ${after}::bigint`}
    ORDER BY outbox_id DESC LIMIT ${page.limit + 1}`;
  return rows.map(listedDelivery);
}

/** Finds the pending delivery that is sent next. All others of its webhook wait for it. */
export async function findFirstPending(
  sql: Database,
  webhookId: string,
): Promise<ListedDelivery | undefined> {
  const [row] = await sql<RowOf<typeof deliveries>[]>`
    SELECT * FROM deliveries WHERE webhook_id = ${webhookId} AND status = 'pending'
    ORDER BY sequence LIMIT 1`;
  return row && listedDelivery(row);
}

/**
 * Returns the condition on the status, written so that the indexes of rare states (deliveries_given_up,
 * deliveries_pending) apply.
 */
function ofStatus(sql: Database, status: DeliveryStatus) {
  if (status === "pending") return sql`AND status = 'pending'`;
  if (status === "delivered") return sql`AND status = 'delivered'`;
  return sql`AND status = ${status} AND status IN ('failed', 'dropped')`;
}

export async function findDelivery(
  sql: Database,
  { webhookId, outboxId }: { readonly webhookId: string; readonly outboxId: bigint },
): Promise<ListedDelivery | undefined> {
  const [row] = await sql<RowOf<typeof deliveries>[]>`
    SELECT * FROM deliveries WHERE webhook_id = ${webhookId} AND outbox_id = ${outboxId.toString()}::bigint`;
  return row && listedDelivery(row);
}

function listedDelivery(row: RowOf<typeof deliveries>): ListedDelivery {
  return {
    outboxId: row.outbox_id,
    eventId: row.event_id,
    eventType: row.event_type,
    status: row.status,
    attempts: row.attempts,
    nextAttemptAtMs: row.status === "pending" ? (row.next_attempt_at?.getTime() ?? null) : null,
    createdAtMs: row.created_at.getTime(),
  };
}

export interface EventToSend {
  readonly eventId: string;
  readonly type: string;
  readonly data: Record<string, unknown>;
  readonly createdAtMs: number;
}

/** Finds the event of a delivery, while it is stored. */
export async function findOutboxEvent(
  sql: Database,
  outboxId: bigint,
): Promise<EventToSend | undefined> {
  const [row] = await sql<
    { event_id: string; type: string; data: Record<string, unknown>; created_at: Date }[]
  >`SELECT event_id, type, data, created_at FROM outbox WHERE id = ${outboxId.toString()}::bigint`;
  return (
    row && {
      eventId: row.event_id,
      type: row.type,
      data: row.data,
      createdAtMs: row.created_at.getTime(),
    }
  );
}

/** Largest number of stored attempts of one delivery, however often it is delivered again. */
const MAX_STORED_ATTEMPTS = 50;

interface RedeliveredDelivery {
  readonly webhookId: string;
  readonly outboxId: bigint;
  readonly organizationId: string;
  /** The organization's id of the delivery. */
  readonly deliveryId: string;
}

/**
 * Records an attempt outside the order. A success ends the delivery, even a failed one, and deliveries that waited for
 * its retry are sent now. A failure only changes the list. Returns undefined if the delivery no longer exists.
 */
export function noteRedelivery(
  sql: Database,
  { webhookId, outboxId, organizationId, deliveryId }: RedeliveredDelivery,
  attempt: AttemptRecord,
): Promise<ListedDelivery | undefined> {
  const isDelivered = attempt.error === null;
  return sql.begin(async (transaction) => {
    const [before] = await transaction<{ status: DeliveryStatus }[]>`
      SELECT status FROM deliveries
      WHERE webhook_id = ${webhookId} AND outbox_id = ${outboxId.toString()}::bigint FOR UPDATE`;
    if (before === undefined) return undefined;
    const [row] = await transaction<Parameters<typeof listedDelivery>>`
      UPDATE deliveries SET
        attempts = CASE WHEN jsonb_array_length(attempts) >= ${MAX_STORED_ATTEMPTS}
          THEN attempts - 0 ELSE attempts END || ${JSON.stringify(attempt)}::text::jsonb,
        status = CASE WHEN ${isDelivered} THEN 'delivered' ELSE status END,
        finished_at = CASE WHEN ${isDelivered} THEN coalesce(finished_at, clock_timestamp()) ELSE finished_at END
      WHERE webhook_id = ${webhookId} AND outbox_id = ${outboxId.toString()}::bigint
      RETURNING *`;
    if (isDelivered && before.status === "pending") {
      await transaction`
        UPDATE webhook_queues SET due_at = webhook_due_at(webhook_id) WHERE webhook_id = ${webhookId}`;
      await recordChange(transaction, "webhook", webhookId);
    }
    await recordAct(transaction, {
      organizationId,
      action: "delivery.redelivered",
      object: { type: "delivery", id: deliveryId },
      after: { webhook_id: webhookId, event_type: row!.event_type, delivered: isDelivered },
    });
    return listedDelivery(row!);
  });
}

/** A change that the owner of a webhook writes. Changes of many webhooks are written together. */
export type DeliveryChange =
  | {
      readonly kind: "attempt";
      readonly lease: Lease;
      /** Commits are shared between organizations. */
      readonly organizationId: string;
      readonly outboxId: bigint;
      /** Number of attempts before this one. */
      readonly attemptCount: number;
      readonly status: DeliveryStatus;
      readonly attempt: AttemptRecord;
      readonly delayMs: number | null;
      readonly disablesVersion: bigint | undefined;
    }
  /** Writes the time at which the webhook has work again. */
  | { readonly kind: "rest"; readonly lease: Lease; readonly organizationId: string };

/** Written only by the batching writer of deliveries. */
interface DeliveryEffect extends StatementEffect {
  readonly change: DeliveryChange;
}

const TABLES = ["deliveries", "webhook_queues", "webhooks", "changes"];

export function deliveryEffect(change: DeliveryChange): DeliveryEffect {
  return {
    kind: "statement",
    name: `delivery-${change.kind}`,
    tables: TABLES,
    events: [],
    change,
    run: () => Promise.reject(new Error("deliveries are written in batches of their own")),
  };
}

export function deliveryChange(effect: Effect): DeliveryChange {
  if (!("change" in effect)) throw new Error("only changes of deliveries can be written here");
  return (effect as DeliveryEffect).change;
}

/**
 * Writes the changes in one statement (function commit_deliveries). Repeating it does no harm. Returns the webhooks
 * whose lease has another owner: nothing of theirs was written.
 */
export async function commitDeliveries(
  sql: Database,
  instance: InstanceIdentity,
  changes: readonly DeliveryChange[],
): Promise<ReadonlySet<string>> {
  const [row] = await sql<{ done: { lost: string[] } }[]>`
    SELECT commit_deliveries(${batchJson(instance, changes)}::text::jsonb) AS done`;
  return new Set(row!.done.lost);
}

function batchJson(instance: InstanceIdentity, changes: readonly DeliveryChange[]): string {
  const leases = new Map<string, bigint>();
  const attempts: unknown[] = [];
  const disabled: unknown[] = [];
  const rested = new Set<string>();
  for (const change of changes) {
    const { id, epoch } = change.lease;
    leases.set(id, epoch);
    if (change.kind === "rest") rested.add(id);
    else {
      attempts.push(attemptRow(change));
      if (change.delayMs !== null) rested.add(id);
      if (change.disablesVersion === undefined) continue;
      disabled.push({ w: id, v: change.disablesVersion.toString() });
      rested.add(id);
    }
  }
  return JSON.stringify({
    instance: instance.id,
    epoch: instance.epoch.toString(),
    leases: [...leases].map(([w, e]) => ({ w, e: e.toString() })),
    ...(attempts.length > 0 && { attempts }),
    ...(disabled.length > 0 && { disabled }),
    ...(rested.size > 0 && { rested: [...rested] }),
  });
}

function attemptRow(change: DeliveryChange & { kind: "attempt" }): Record<string, unknown> {
  return {
    w: change.lease.id,
    o: change.outboxId.toString(),
    n: change.attemptCount,
    s: change.status,
    a: change.attempt,
    d: change.delayMs,
  };
}

/*
 * Expired rows (contract 8 and 9) are removed in parts. Functions that go through a table do so in the order of its
 * ids: each reads a bounded number of rows after the last one that was read.
 */

/** Last id that was read; the next part begins after it. Undefined at the end of the table. */
export type CleaningCursor<Id> = Id | undefined;

/**
 * Drops pending deliveries that have waited three days for a disabled webhook. Returns their number by webhook.
 */
export async function dropExpiredDeliveries(
  sql: Database,
  limit: number,
): Promise<ReadonlyMap<string, number>> {
  const rows = await sql<{ webhook_id: string; count: number }[]>`
    WITH expired AS (
      SELECT d.webhook_id, d.outbox_id FROM webhooks w JOIN deliveries d ON d.webhook_id = w.id
      WHERE NOT w.enabled AND w.disabled_at < clock_timestamp() - interval '3 days'
        AND d.status = 'pending' AND d.created_at < clock_timestamp() - interval '3 days'
      LIMIT ${limit}
    ), dropped AS (
      UPDATE deliveries d SET status = 'dropped', next_attempt_at = NULL, finished_at = clock_timestamp()
      FROM expired e WHERE d.webhook_id = e.webhook_id AND d.outbox_id = e.outbox_id AND d.status = 'pending'
      RETURNING d.webhook_id
    )
    SELECT webhook_id, count(*)::int AS count FROM dropped GROUP BY webhook_id`;
  return new Map(rows.map((row) => [row.webhook_id, row.count]));
}

/** Removes deliveries that are older than 30 days. Returns their number. */
export async function removeOldDeliveries(sql: Database, limit: number): Promise<number> {
  const removed = await sql`
    DELETE FROM deliveries WHERE (webhook_id, outbox_id) IN (
      SELECT webhook_id, outbox_id FROM deliveries
      WHERE created_at < clock_timestamp() - interval '30 days' AND status <> 'pending' LIMIT ${limit})`;
  return removed.count;
}

/**
 * Removes the rows of deleted webhooks: their deliveries, then their leases, which show that rows are left.
 */
export async function removeOrphanedDeliveries(
  sql: Database,
  after: string,
  limit: number,
): Promise<CleaningCursor<string>> {
  const [row] = await sql<{ last: string | null; looked_at: number; removed: number }[]>`
    WITH looked_at AS MATERIALIZED (
      SELECT id FROM actor_leases WHERE kind = 'webhook' AND id > ${after} ORDER BY id LIMIT ${limit}
    ), orphaned AS MATERIALIZED (
      SELECT l.id FROM looked_at l WHERE NOT EXISTS (SELECT 1 FROM webhooks w WHERE w.id = l.id)
    ), left_behind AS MATERIALIZED (
      SELECT d.webhook_id, d.outbox_id FROM orphaned o JOIN deliveries d ON d.webhook_id = o.id LIMIT ${limit}
    ), removed AS (
      DELETE FROM deliveries d USING left_behind l
      WHERE d.webhook_id = l.webhook_id AND d.outbox_id = l.outbox_id RETURNING 1
    ), released AS (
      DELETE FROM actor_leases l USING orphaned o
      WHERE l.kind = 'webhook' AND l.id = o.id AND l.instance_id IS NULL
        AND (SELECT count(*) FROM left_behind) < ${limit}
    )
    SELECT (SELECT max(id) FROM looked_at) AS last, (SELECT count(*)::int FROM looked_at) AS looked_at,
      (SELECT count(*)::int FROM removed) AS removed`;
  const { last, looked_at: lookedAt, removed } = row!;
  // A webhook with more deliveries is checked again.
  if (removed >= limit) return after;
  return lookedAt < limit ? undefined : (last ?? undefined);
}

/**
 * Removes events seven days after the last of their deliveries has ended, and never before they are numbered.
 */
export async function removeOldEvents(
  sql: Database,
  after: bigint,
  limit: number,
): Promise<CleaningCursor<bigint>> {
  const [row] = await sql<{ last: bigint | null; looked_at: number; are_old: boolean | null }[]>`
    WITH looked_at AS MATERIALIZED (
      SELECT id, organization_id, created_at < clock_timestamp() - interval '7 days' AS is_old
      FROM outbox WHERE id > ${after.toString()}::bigint ORDER BY id LIMIT ${limit}
    ), removed AS (
      DELETE FROM outbox WHERE id IN (
        SELECT o.id FROM looked_at o WHERE o.is_old
          AND NOT EXISTS (
            SELECT 1 FROM unnumbered_events u
            WHERE u.organization_id = o.organization_id AND u.outbox_id = o.id)
          AND NOT EXISTS (
            SELECT 1 FROM webhooks w JOIN deliveries d ON d.webhook_id = w.id AND d.outbox_id = o.id
            WHERE w.organization_id = o.organization_id
              AND (d.status = 'pending' OR d.finished_at > clock_timestamp() - interval '7 days')))
    )
    SELECT max(id) AS last, count(*)::int AS looked_at, bool_and(is_old) AS are_old FROM looked_at`;
  const { last, looked_at: lookedAt, are_old: areOld } = row!;
  return lookedAt < limit || areOld !== true ? undefined : (last ?? undefined);
}

/** Sets due times that are missing, so that sweeps find all work. */
export async function repairDueTimes(
  sql: Database,
  after: string,
  limit: number,
): Promise<CleaningCursor<string>> {
  const [row] = await sql<{ last: string | null; looked_at: number }[]>`
    WITH looked_at AS MATERIALIZED (
      SELECT webhook_id, due_at FROM webhook_queues WHERE webhook_id > ${after} ORDER BY webhook_id LIMIT ${limit}
    ), forgotten AS MATERIALIZED (
      SELECT l.webhook_id FROM looked_at l JOIN webhooks w ON w.id = l.webhook_id
      WHERE l.due_at IS NULL AND w.enabled AND EXISTS (
        SELECT 1 FROM deliveries d WHERE d.webhook_id = l.webhook_id AND d.status = 'pending')
    ), locked AS MATERIALIZED (
      SELECT q.webhook_id FROM webhook_queues q JOIN forgotten f USING (webhook_id)
      ORDER BY q.webhook_id FOR NO KEY UPDATE OF q
    ), repaired AS (
      UPDATE webhook_queues q SET due_at = webhook_due_at(q.webhook_id)
      FROM locked l WHERE q.webhook_id = l.webhook_id
    )
    SELECT max(webhook_id) AS last, count(*)::int AS looked_at FROM looked_at`;
  const { last, looked_at: lookedAt } = row!;
  return lookedAt < limit ? undefined : (last ?? undefined);
}
