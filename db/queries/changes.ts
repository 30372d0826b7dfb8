import type { Database, DatabaseTransaction } from "../client.ts";

export const CHANGES_CHANNEL = "gateway_changes";

export type ChangeKind =
  | "api-key"
  | "organization"
  /** The budget of an end user or tag has changed. */
  | "subject-budget"
  /** The object is the organization whose end users and tags with budgets have changed. */
  | "budget-subjects"
  /** An organization was suspended or resumed. */
  | "suspension"
  | "credit-command"
  /** The object is the organization whose models have changed. */
  | "tuned-model"
  | "fine-tuning-job"
  /** A job has work for its owner. */
  | "fine-tuning-work"
  | "webhook"
  /** The event types that an organization's webhooks subscribe to. The id is the organization's. */
  | "subscriptions"
  /** The object is the organization whose keys for providers have changed. */
  | "provider-keys"
  /** The object is the organization whose presets and guardrails have changed. */
  | "definitions"
  /** Files of the organization wait to be indexed in its vector stores. */
  | "vector-store-work"
  /** The batch has work for its owner. */
  | "batch-work"
  /** The instance that runs the background response has to end it. */
  | "response-cancel"
  /** Another master key seals. The id is the key's. */
  | "master-key";

/** Notifies every process, in the transaction of the change, that its copy of an object is old. */
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
