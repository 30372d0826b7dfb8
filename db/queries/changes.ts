import type { Database, DatabaseTransaction } from "../client.ts";

export const CHANGES_CHANNEL = "gateway_changes";

export type ChangeKind =
  | "api-key"
  | "organization"
  /** What is known of the budget of an end user or tag is old. */
  | "subject-budget"
  /** The object is the organization whose end users and tags with budgets they are. */
  | "budget-subjects"
  /** An organization was suspended, or is not any more. */
  | "suspension"
  | "credit-command"
  /** The object is the organization whose models they are. */
  | "tuned-model"
  | "fine-tuning-job"
  /** A job has something to do for its owner. */
  | "fine-tuning-work"
  | "webhook"
  /** Which event types an organization's webhooks want; the id is the organization's. */
  | "subscriptions"
  /** The object is the organization whose keys for providers they are. */
  | "provider-keys"
  /** The object is the organization whose presets and guardrails they are. */
  | "definitions"
  /** Files of the organization are to be indexed in its vector stores. */
  | "vector-store-work"
  /** The batch has something to do for its owner. */
  | "batch-work"
  /** A background response is to be ended by the instance that runs it. */
  | "response-cancel"
  /** Another master key seals; the id is the key's. */
  | "master-key";

/** Tells every process, in the transaction of the change, that what it holds of an object is old. */
export async function recordChange(
  sql: DatabaseTransaction,
  kind: ChangeKind,
  objectId: string,
): Promise<void> {
  await sql`INSERT INTO changes (kind, object_id) VALUES (${kind}, ${objectId})`;
  await sql`SELECT pg_notify(${CHANGES_CHANNEL}, ${`${kind} ${objectId}`})`;
}

export interface Change {
  readonly id: bigint;
  readonly kind: string;
  readonly objectId: string;
}

/** Far above what a heartbeat that came late could miss. */
const LOOK_BACK_SECONDS = 15;

/**
 * Changes of the last seconds. Rows become visible in the order of commits, not of ids, so a reader
 * looks back a while and passes over what it has seen.
 */
export async function recentChanges(sql: Database): Promise<Change[]> {
  const rows = await sql<{ id: bigint; kind: string; object_id: string }[]>`
    SELECT id, kind, object_id FROM changes
    WHERE changed_at > clock_timestamp() - make_interval(secs => ${LOOK_BACK_SECONDS}) ORDER BY id`;
  return rows.map((row) => ({ id: row.id, kind: row.kind, objectId: row.object_id }));
}

const REMOVAL_BATCH = 10_000;

/** Removes a bounded number of them. True where there may be more. */
export async function removeOldChanges(sql: Database): Promise<boolean> {
  const removed = await sql`DELETE FROM changes WHERE id IN (
    SELECT id FROM changes WHERE changed_at < clock_timestamp() - interval '10 minutes'
    LIMIT ${REMOVAL_BATCH})`;
  return removed.count === REMOVAL_BATCH;
}
