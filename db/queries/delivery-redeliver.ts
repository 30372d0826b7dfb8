import type { AttemptRecord, DeliveryStatus } from "../../src/lib/webhook-record.ts";
import type { Database } from "../client.ts";
import { recordChange } from "./changes.ts";
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
