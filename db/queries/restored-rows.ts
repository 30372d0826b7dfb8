import type { DatabaseTransaction } from "../client.ts";

/** Tables whose rows mean nothing to another process, or end with their purpose. */
export const LEFT_OUT: Readonly<Record<string, string>> = {
  changes: "changes that running instances had to reload",
  commit_marks: "transactions that their writers ask about within seconds",
  dashboard_sessions: "sessions end with a restore",
  playground_secrets: "they end with their sessions",
  media_links: "links that last an hour, whose bytes are not copied",
};

/**
 * Longer than the lease of an instance, so that a clock that differs does not make dead instances look alive.
 */
const SILENT = "1 minute";
const ORGANIZATIONS_A_TURN = 64;
const ROWS_A_TURN = 2_048;

/**
 * Makes rows of another database cluster valid in this one. Instances count as dead: the next start, or other
 * instances, settle their work. Events without numbers are numbered here, because the snapshots that decide which
 * webhooks get them count the other cluster's transactions. From now on each webhook gets the events that this cluster
 * writes.
 */
export async function settleRestored(sql: DatabaseTransaction): Promise<void> {
  await sql`UPDATE instances
    SET heartbeat_at = least(heartbeat_at, clock_timestamp() - ${SILENT}::interval)`;
  await numberAll(sql);
  await sql`UPDATE webhook_queues
    SET numbered = format('%1$s:%1$s:', pg_current_xact_id()::text)::pg_snapshot`;
}

async function numberAll(sql: DatabaseTransaction): Promise<void> {
  const id = `restore_${crypto.randomUUID()}`;
  await sql`INSERT INTO instances (id, epoch) VALUES (${id}, 0)`;
  for (let after = ""; await haveUnnumbered(sql); ) {
    const [row] = await sql<{ turn: SequencingTurn }[]>`
      SELECT number_events(${id}, 0, ${after}, ${ORGANIZATIONS_A_TURN}, ${ROWS_A_TURN}) AS turn`;
    // After the last organization it begins again with the first.
    after = row!.turn.last ?? "";
  }
  await sql`DELETE FROM instances WHERE id = ${id}`;
}

interface SequencingTurn {
  readonly last: string | null;
}

async function haveUnnumbered(sql: DatabaseTransaction): Promise<boolean> {
  const [row] = await sql<{ is_left: boolean }[]>`
    SELECT EXISTS (SELECT 1 FROM unnumbered_events) AS is_left`;
  return row!.is_left;
}

/**
 * Keeps a copy from external actions while the original continues: webhooks and alerts are disabled, waiting deliveries are
 * dropped, nothing is paid or looked up at the payment processor, jobs and batches do not run.
 */
export async function stopExternalActions(sql: DatabaseTransaction): Promise<void> {
  await sql`UPDATE webhooks SET enabled = false, version = version + 1,
      disabled_at = clock_timestamp(), disabled_by = 'request' WHERE enabled`;
  await sql`UPDATE webhook_queues SET due_at = NULL`;
  await sql`UPDATE deliveries SET status = 'dropped', next_attempt_at = NULL,
      finished_at = clock_timestamp() WHERE status = 'pending'`;
  await sql`UPDATE alert_channels SET enabled = false, version = version + 1,
      disabled_at = clock_timestamp(), disabled_by = 'request' WHERE enabled`;
  await sql`UPDATE alert_states SET due_at = NULL`;
  await sql`UPDATE auto_replenish SET is_enabled = false, due_at = NULL, intent_id = NULL`;
  await sql`UPDATE accounts SET replenish_below_nano = NULL WHERE replenish_below_nano IS NOT NULL`;
  await sql`UPDATE payment_intents SET next_look_at = ${NEVER}, busy_until = ${NEVER}
    WHERE state IN ('pending', 'requires_action')`;
  await sql`UPDATE payment_refunds SET next_look_at = ${NEVER}, busy_until = ${NEVER}
    WHERE state IN ('ordered', 'pending')`;
  await sql`UPDATE payment_reversals SET next_look_at = ${NEVER} WHERE NOT is_settled`;
  await sql`UPDATE plan_subscriptions SET next_look_at = NULL`;
  await sql`UPDATE fine_tuning_jobs SET due_at = NULL`;
  await sql`UPDATE batches SET due_at = NULL`;
  await sql`UPDATE vector_store_files SET due_at = NULL WHERE status = 'in_progress'`;
}

const NEVER = "9999-01-01T00:00:00Z";
