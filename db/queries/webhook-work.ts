import type { Database } from "../client.ts";

/** Events of transactions that it does not show as finished are new to its holder. */
export type EventSnapshot = string;

export interface WebhookWork {
  /** Webhooks with something to do that nobody alive acts for, those that wait longest first. */
  readonly unowned: readonly string[];
  /** Webhooks with new events that somebody acts for, and the instance that does. */
  readonly owned: readonly { readonly id: string; readonly instanceId: string }[];
  /** Unowned ones with new events, whether or not they are among the first. */
  readonly fresh: readonly string[];
  /** What the next look begins from. */
  readonly snapshot: EventSnapshot;
}

/**
 * One look at all there is to deliver: webhooks whose first delivery is due, webhooks with events that
 * came into sight since the last look, those remembered from it, and those whose owner died.
 */
export async function findWebhookWork(
  sql: Database,
  look: {
    readonly since: EventSnapshot;
    readonly remembered: readonly string[];
    readonly limit: number;
  },
): Promise<WebhookWork> {
  const rows = await sql<WorkRow[]>`
    WITH seen AS (
      SELECT ${look.since}::text::pg_snapshot AS snapshot
    ), fresh AS MATERIALIZED (
      SELECT DISTINCT o.organization_id, o.type FROM seen s JOIN outbox o
        ON o.xid >= pg_snapshot_xmin(s.snapshot) AND NOT pg_visible_in_snapshot(o.xid, s.snapshot)
    ), candidates AS (
      SELECT w.id, NULL::timestamptz AS due_at, true AS is_fresh
      FROM fresh f JOIN webhooks w ON w.organization_id = f.organization_id
        AND (w.events @> ARRAY[f.type] OR w.events @> ARRAY['*'])
      UNION ALL
      SELECT id, NULL, true FROM unnest(${sql.array([...look.remembered])}::text[]) AS id
      UNION ALL
      (SELECT q.webhook_id, q.due_at, false FROM webhook_queues q
      WHERE q.due_at <= clock_timestamp() AND NOT EXISTS (
        SELECT 1 FROM owned_actors a WHERE a.kind = 'webhook' AND a.id = q.webhook_id)
      ORDER BY q.due_at LIMIT ${look.limit})
      UNION ALL
      (SELECT l.id, NULL, false FROM actor_leases l
      WHERE l.kind = 'webhook' AND l.instance_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM live_instances i WHERE i.id = l.instance_id AND i.epoch = l.instance_epoch)
      LIMIT ${look.limit})
    ), work AS (
      SELECT c.id, min(c.due_at) AS due_at, bool_or(c.is_fresh) AS is_fresh FROM candidates c GROUP BY c.id
    )
    SELECT w.id, w.is_fresh, pg_current_snapshot()::text AS snapshot, (
      SELECT l.instance_id FROM actor_leases l
      JOIN live_instances i ON i.id = l.instance_id AND i.epoch = l.instance_epoch
      WHERE l.kind = 'webhook' AND l.id = w.id) AS owner
    FROM (SELECT 1) one LEFT JOIN work w ON true
    ORDER BY w.due_at NULLS LAST`;
  const found = rows.filter((row): row is WorkRow & { id: string } => row.id !== null);
  const unowned = found.filter((row) => row.owner === null);
  return {
    unowned: unowned.slice(0, look.limit).map((row) => row.id),
    owned: found.flatMap(({ id, owner }) => (owner === null ? [] : { id, instanceId: owner })),
    fresh: unowned.filter((row) => row.is_fresh).map((row) => row.id),
    snapshot: rows[0]!.snapshot,
  };
}

interface WorkRow {
  /** Null in the one row of a look that found nothing. */
  readonly id: string | null;
  readonly is_fresh: boolean;
  readonly snapshot: string;
  readonly owner: string | null;
}

/**
 * Every webhook with events that have no number yet, asked at the start and now and then: it needs to
 * remember nothing. The snapshot was taken with it.
 */
export async function findUnnumbered(
  sql: Database,
  eventTypes: readonly string[],
): Promise<{ ids: string[]; snapshot: EventSnapshot }> {
  const rows = await sql<{ id: string | null; snapshot: string }[]>`
    SELECT w.id, pg_current_snapshot()::text AS snapshot
    FROM (SELECT 1) one LEFT JOIN (
      SELECT w.id FROM webhooks w JOIN webhook_queues q ON q.webhook_id = w.id
      WHERE pg_snapshot_xmax(q.numbered) > pg_snapshot_xmax(pg_current_snapshot()) OR EXISTS (
        SELECT 1 FROM outbox o WHERE o.organization_id = w.organization_id
          AND o.type = ANY (CASE WHEN '*' = ANY (w.events)
            THEN ${sql.array([...eventTypes])}::text[] ELSE w.events END)
          AND o.xid >= pg_snapshot_xmin(q.numbered) AND NOT pg_visible_in_snapshot(o.xid, q.numbered))
    ) w ON true`;
  return { ids: rows.flatMap(({ id }) => id ?? []), snapshot: rows[0]!.snapshot };
}
