import type { AttemptRecord } from "../../src/lib/webhook-record.ts";
import type { Database } from "../client.ts";
import { type ListedDelivery, listedDelivery } from "./delivery-list.ts";

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
 * Notes an attempt outside the order. A success ends the delivery, also one that was given up; a failure
 * changes nothing but the list. Returns undefined where the delivery is gone.
 */
export async function noteRedelivery(
  sql: Database,
  delivery: { readonly webhookId: string; readonly outboxId: bigint },
  attempt: AttemptRecord,
): Promise<ListedDelivery | undefined> {
  const isDelivered = attempt.error === null;
  const [row] = await sql<Parameters<typeof listedDelivery>>`
    UPDATE deliveries SET
      attempts = CASE WHEN jsonb_array_length(attempts) >= ${MAX_KEPT_ATTEMPTS}
        THEN attempts - 0 ELSE attempts END || ${JSON.stringify(attempt)}::text::jsonb,
      status = CASE WHEN ${isDelivered} THEN 'delivered' ELSE status END,
      finished_at = CASE WHEN ${isDelivered} THEN coalesce(finished_at, clock_timestamp()) ELSE finished_at END
    WHERE webhook_id = ${delivery.webhookId} AND outbox_id = ${delivery.outboxId.toString()}::bigint
    RETURNING *`;
  return row && listedDelivery(row);
}
