import type { Database } from "../client.ts";

/*
 * What is not kept any more (contract 8 and 9) is removed in parts. Those that go through a table do so in
 * the order of its ids: each looks at a bounded number of rows behind the last one that was looked at.
 */

/** Where the next part begins; undefined where the end was reached. */
export type CleaningCursor<Id> = Id | undefined;

/** Drops pending deliveries that waited three days behind a disabled webhook. How many of which webhook. */
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

/** Removes deliveries that are older than 30 days. How many. */
export async function removeOldDeliveries(sql: Database, limit: number): Promise<number> {
  const removed = await sql`
    DELETE FROM deliveries WHERE (webhook_id, outbox_id) IN (
      SELECT webhook_id, outbox_id FROM deliveries
      WHERE created_at < clock_timestamp() - interval '30 days' AND status <> 'pending' LIMIT ${limit})`;
  return removed.count;
}

/**
 * Removes what deleted webhooks have left: their deliveries, then their leases, which show that there is
 * something left.
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
  // A webhook with more of them is looked at again.
  if (removed >= limit) return after;
  return lookedAt < limit ? undefined : (last ?? undefined);
}

/** Removes events seven days after the last of their deliveries has ended, and never before they are numbered. */
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

/** Makes due what no sweep would find, should it ever come to that. */
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
