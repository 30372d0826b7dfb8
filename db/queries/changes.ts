import type { Database, DatabaseTransaction } from "../client.ts";

export const CHANGES_CHANNEL = "gateway_changes";

/**
 * Every kind of change that TypeScript or an SQL function sends. The object of a change is the one that the kind names,
 * unless a comment says otherwise.
 */
export const CHANGE_KINDS = [
  "api-key",
  "organization",
  /** The object is a team or a member whose limits, budget or state have changed. */
  "key-owner",
  /** The budget of an end user or tag has changed. */
  "subject-budget",
  /** The object is the organization whose end users and tags with budgets have changed. */
  "budget-subjects",
  /** The object is an organization that was suspended or resumed. */
  "suspension",
  "credit-command",
  /** The object is an organization whose automatic top-up may be due. It is notified without a row. */
  "replenish",
  /** The object is the organization whose fine-tuned models have changed. */
  "tuned-model",
  "fine-tuning-job",
  /** The object is a fine-tuning job with work for its owner. */
  "fine-tuning-work",
  "webhook",
  /** The object is an organization with new events in the outbox. It is notified without a row. */
  "outbox",
  /** The object is the organization whose webhooks subscribe to other event types than before. */
  "subscriptions",
  /** The object is the organization whose keys for providers have changed. */
  "provider-keys",
  /** The object is the organization whose presets and guardrails have changed. */
  "definitions",
  /** The object is the organization with files to index in its vector stores. */
  "vector-store-work",
  /** The object is a batch with work for its owner. */
  "batch-work",
  /** The object is a background response, which the instance that runs it has to end. */
  "response-cancel",
  /** The object is the id of the stored entry, or "several", that operators have changed. */
  "configuration",
  /** The object is the id of the master key that seals from now on. */
  "master-key",
] as const;

export type ChangeKind = (typeof CHANGE_KINDS)[number];

/**
 * Records a change and notifies every process, in the transaction of the change. A process that misses the notification
 * reads the row.
 */
export async function recordChange(
  sql: DatabaseTransaction,
  kind: ChangeKind,
  objectId: string,
): Promise<void> {
  await sql`INSERT INTO changes (kind, object_id) VALUES (${kind}, ${objectId})`;
  await notifyChange(sql, kind, objectId);
}

/** Notifies every process without a row. Use it only if a check at intervals finds the change too. */
export async function notifyChange(
  sql: DatabaseTransaction,
  kind: ChangeKind,
  objectId: string,
): Promise<void> {
  await sql`SELECT pg_notify(${CHANGES_CHANNEL}, ${`${kind} ${objectId}`})`;
}

export interface Change {
  readonly id: bigint;
  /** A ChangeKind, or a kind of a later version. */
  readonly kind: string;
  readonly objectId: string;
}

/** Far more than a late heartbeat can miss. */
const LOOK_BACK_SECONDS = 15;

/**
 * Returns the changes of the last seconds. Rows become visible in the order of commits, not of ids. So a reader looks
 * back and skips the changes that it has seen.
 */
export async function recentChanges(sql: Database): Promise<Change[]> {
  const rows = await sql<{ id: bigint; kind: string; object_id: string }[]>`
    SELECT id, kind, object_id FROM changes
    WHERE changed_at > clock_timestamp() - make_interval(secs => ${LOOK_BACK_SECONDS}) ORDER BY id`;
  return rows.map((row) => ({ id: row.id, kind: row.kind, objectId: row.object_id }));
}

const REMOVAL_BATCH = 10_000;

/** Removes a bounded number of changes. Returns true if there may be more. */
export async function removeOldChanges(sql: Database): Promise<boolean> {
  const removed = await sql`DELETE FROM changes WHERE id IN (
    SELECT id FROM changes WHERE changed_at < clock_timestamp() - interval '10 minutes'
    LIMIT ${REMOVAL_BATCH})`;
  return removed.count === REMOVAL_BATCH;
}
