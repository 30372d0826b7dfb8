import type { AttemptRecord, DeliveryStatus } from "../../src/lib/webhook-record.ts";
import type { Database } from "../client.ts";

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
  const status = page.status ?? null;
  const after = page.after?.toString() ?? null;
  const rows = await sql<DeliveryRow[]>`
    SELECT * FROM deliveries WHERE webhook_id = ${page.webhookId}
      AND (${status}::text IS NULL OR status = ${status})
      AND (${after}::bigint IS NULL OR outbox_id < ${after}::bigint)
    ORDER BY outbox_id DESC LIMIT ${page.limit + 1}`;
  return rows.map(listedDelivery);
}

export async function findDelivery(
  sql: Database,
  { webhookId, outboxId }: { readonly webhookId: string; readonly outboxId: bigint },
): Promise<ListedDelivery | undefined> {
  const [row] = await sql<DeliveryRow[]>`
    SELECT * FROM deliveries WHERE webhook_id = ${webhookId} AND outbox_id = ${outboxId.toString()}::bigint`;
  return row && listedDelivery(row);
}

export function listedDelivery(row: DeliveryRow): ListedDelivery {
  return {
    outboxId: row.outbox_id,
    eventId: row.event_id,
    eventType: row.event_type,
    status: row.status,
    attempts: row.attempts,
    nextAttemptAtMs: row.status === "pending" ? (row.next_attempt_at?.getTime() ?? null) : null,
  };
}
