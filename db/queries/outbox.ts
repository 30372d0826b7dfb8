import type { EventType } from "../../src/lib/events/event-types.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import type { StatementEffect } from "../ledger/effects.ts";
import type { InstanceIdentity } from "../ledger/settle-batch.ts";

export interface OutboxEvent {
  readonly eventId: string;
  readonly organizationId: string;
  /** A type that webhooks can subscribe to. */
  readonly type: EventType;
  readonly data: Record<string, unknown>;
}

/** Writes an event in the transaction of the change that it reports. */
export async function insertOutboxEvent(
  sql: DatabaseTransaction,
  event: OutboxEvent,
): Promise<void> {
  await insertOutboxEvents(sql, [event]);
}

/** Writes events. Skips events whose id exists already. */
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

/** Returns an effect that writes an event together with other effects. */
export function outboxEffect(event: OutboxEvent): StatementEffect {
  return {
    kind: "statement",
    name: "outbox-insert",
    tables: ["outbox"],
    events: [event.type],
    run: (sql) => insertOutboxEvent(sql, event),
  };
}

/** Result of one turn of numbering. */
interface SequencingTurn {
  /** Number of deliveries that were written. */
  readonly numbered: number;
  /** Webhooks that got deliveries, and the live instance that owns each. Null if none does. */
  readonly webhooks: ReadonlyMap<string, string | null>;
  /**
   * The organization after which the next turn begins. Undefined if all organizations after `after` were served.
   */
  readonly last: string | undefined;
  /** True if an organization of this turn has more events. */
  readonly isMore: boolean;
}

interface SequencingBounds {
  readonly maxOrganizations: number;
  /** Pairs of event and webhook, divided among the organizations. */
  readonly maxRows: number;
}

/**
 * Numbers events of the organizations after `after` (function number_events). Repeating it does no harm.
 */
export async function sequenceEvents(
  sql: Database,
  instance: InstanceIdentity,
  after: string,
  bounds: SequencingBounds,
): Promise<SequencingTurn> {
  const [row] = await sql<{ turn: TurnRow }[]>`
    SELECT number_events(${instance.id}, ${instance.epoch.toString()}::bigint, ${after},
      ${bounds.maxOrganizations}, ${bounds.maxRows}) AS turn`;
  const { numbered, webhooks, last, is_more: isMore } = row!.turn;
  return { numbered, webhooks: new Map(Object.entries(webhooks)), last: last ?? undefined, isMore };
}

interface TurnRow {
  readonly numbered: number;
  readonly webhooks: Record<string, string | null>;
  readonly last: string | null;
  readonly is_more: boolean;
}

export interface DeliveryBacklog {
  /** Age of the oldest event that is not numbered yet. 0 if all are. */
  readonly oldestUnnumberedSeconds: number;
  /** Age of the oldest event that an enabled webhook has not received. 0 if there is none. */
  readonly oldestUndeliveredSeconds: number;
}

/**
 * Largest number of organizations and webhooks that are searched for the ages: the first in order.
 */
const MAX_LOOKED_AT = 1_000;

export async function deliveryBacklog(sql: Database): Promise<DeliveryBacklog> {
  const [row] = await sql<{ unnumbered: number; undelivered: number }[]>`
    WITH RECURSIVE waiting AS (
      (SELECT organization_id, outbox_id FROM unnumbered_events ORDER BY organization_id, outbox_id LIMIT 1)
      UNION ALL
      SELECT n.organization_id, n.outbox_id FROM waiting w CROSS JOIN LATERAL (
        SELECT u.organization_id, u.outbox_id FROM unnumbered_events u
        WHERE u.organization_id > w.organization_id ORDER BY u.organization_id, u.outbox_id LIMIT 1) n
    ), unnumbered AS (
      SELECT o.created_at FROM (SELECT outbox_id FROM waiting LIMIT ${MAX_LOOKED_AT}) w
      JOIN outbox o ON o.id = w.outbox_id
    ), undelivered AS (
      SELECT d.created_at FROM (
        SELECT webhook_id FROM webhook_queues WHERE due_at IS NOT NULL ORDER BY due_at LIMIT ${MAX_LOOKED_AT}) q
      CROSS JOIN LATERAL (
        SELECT d.outbox_id FROM deliveries d WHERE d.webhook_id = q.webhook_id AND d.status = 'pending'
        ORDER BY d.sequence LIMIT 1) h
      JOIN outbox d ON d.id = h.outbox_id
    )
    SELECT
      greatest(0, coalesce(extract(epoch FROM clock_timestamp() - (SELECT min(created_at) FROM unnumbered)), 0))::float8
        AS unnumbered,
      greatest(0, coalesce(extract(epoch FROM clock_timestamp() - (SELECT min(created_at) FROM undelivered)), 0))::float8
        AS undelivered`;
  return { oldestUnnumberedSeconds: row!.unnumbered, oldestUndeliveredSeconds: row!.undelivered };
}
