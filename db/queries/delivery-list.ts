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
