import type { DatabaseTransaction } from "../client.ts";

export interface OutboxEvent {
  readonly eventId: string;
  readonly organizationId: string;
  readonly type: string;
  readonly data: Record<string, unknown>;
}

/** Writes an event in the transaction of the change that it reports. */
export async function insertOutboxEvent(
  sql: DatabaseTransaction,
  event: OutboxEvent,
): Promise<void> {
  await sql`INSERT INTO outbox (event_id, organization_id, type, data)
    VALUES (${event.eventId}, ${event.organizationId}, ${event.type}, ${JSON.stringify(event.data)}::text::jsonb)`;
}
