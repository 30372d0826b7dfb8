import type { AttemptRecord, DeliveryStatus } from "../../src/lib/webhook-record.ts";
import type { Database } from "../client.ts";
import { recordChange } from "./changes.ts";

export interface ListedDelivery {
  readonly outboxId: bigint;
  readonly eventId: string;
  readonly eventType: string;
  readonly status: DeliveryStatus;
  readonly attempts: readonly AttemptRecord[];
  readonly nextAttemptAtMs: number | null;
}

interface DeliveryRow {
  readonly outbox_id: bigint;
  readonly event_id: string;
  readonly event_type: string;
  readonly status: DeliveryStatus;
  readonly attempts: AttemptRecord[];
  readonly next_attempt_at: Date | null;
}

/** Deliveries of a webhook, newest first, one more than `limit` where there are more. */
export async function listDeliveries(
  sql: Database,
  page: {
    readonly webhookId: string;
    readonly status: DeliveryStatus | undefined;
    /** The last one of the page before. */
    readonly after: bigint | undefined;
    readonly limit: number;
  },
): Promise<ListedDelivery[]> {
  const after = page.after?.toString();
  const rows = await sql<DeliveryRow[]>`
    SELECT * FROM deliveries WHERE webhook_id = ${page.webhookId}
      ${page.status === undefined ? sql`` : ofStatus(sql, page.status)}
      ${after === undefined ? sql`` : sql`AND outbox_id < ${after}::bigint`}
    ORDER BY outbox_id DESC LIMIT ${page.limit + 1}`;
  return rows.map(listedDelivery);
}

/** In words that the indexes of those that are rare (deliveries_given_up, deliveries_pending) are found by. */
function ofStatus(sql: Database, status: DeliveryStatus) {
  if (status === "pending") return sql`AND status = 'pending'`;
  if (status === "delivered") return sql`AND status = 'delivered'`;
  return sql`AND status = ${status} AND status IN ('failed', 'dropped')`;
}

export async function findDelivery(
  sql: Database,
  { webhookId, outboxId }: { readonly webhookId: string; readonly outboxId: bigint },
): Promise<ListedDelivery | undefined> {
  const [row] = await sql<DeliveryRow[]>`
    SELECT * FROM deliveries WHERE webhook_id = ${webhookId} AND outbox_id = ${outboxId.toString()}::bigint`;
  return row && listedDelivery(row);
}

function listedDelivery(row: DeliveryRow): ListedDelivery {
  return {
    outboxId: row.outbox_id,
    eventId: row.event_id,
    eventType: row.event_type,
    status: row.status,
    attempts: row.attempts,
    nextAttemptAtMs: row.status === "pending" ? (row.next_attempt_at?.getTime() ?? null) : null,
  };
}

export interface EventToSend {
  readonly eventId: string;
  readonly type: string;
  readonly data: Record<string, unknown>;
  readonly createdAtMs: number;
}

/** The event of a delivery, while it is kept. */
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

/** Attempts that are kept of one delivery, however often it is delivered again. */
const MAX_KEPT_ATTEMPTS = 50;

/**
 * Notes an attempt outside the order. A success ends the delivery, also one that was given up, and what
 * stood behind one that was to be sent again goes out now; a failure changes nothing but the list. Returns
 * undefined where the delivery is gone.
 */
export function noteRedelivery(
  sql: Database,
  { webhookId, outboxId }: { readonly webhookId: string; readonly outboxId: bigint },
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
        attempts = CASE WHEN jsonb_array_length(attempts) >= ${MAX_KEPT_ATTEMPTS}
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
    return listedDelivery(row!);
  });
}
