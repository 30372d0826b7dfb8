import type { Database, DatabaseTransaction } from "../client.ts";
import type { StatementEffect } from "../ledger/effects.ts";

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
  await insertOutboxEvents(sql, [event]);
}

/** Writes events; one whose id is there already is there already. */
export async function insertOutboxEvents(
  sql: Database | DatabaseTransaction,
  events: readonly OutboxEvent[],
): Promise<void> {
  const rows = events.map(({ eventId, organizationId, type, data }) => ({
    event_id: eventId,
    organization_id: organizationId,
    type,
    data,
  }));
  await sql`INSERT INTO outbox (event_id, organization_id, type, data)
    SELECT event_id, organization_id, type, data
    FROM ROWS FROM (jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb)
      AS (event_id text, organization_id text, type text, data jsonb)) WITH ORDINALITY AS r
    ORDER BY r.ordinality
    ON CONFLICT (event_id) DO NOTHING`;
}

/** Written with what else is written then. */
export function outboxEffect(event: OutboxEvent): StatementEffect {
  return {
    kind: "statement",
    name: "outbox-insert",
    tables: ["outbox"],
    events: [event.type],
    run: (sql) => insertOutboxEvent(sql, event),
  };
}
