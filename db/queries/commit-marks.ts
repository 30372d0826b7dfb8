import type { Database, DatabaseTransaction } from "../client.ts";

/**
 * Leaves the mark of the transaction in which it runs. Returns false if an earlier try of the transaction was
 * committed. Waits for a try that is still being committed.
 */
export async function leaveCommitMark(sql: DatabaseTransaction, id: string): Promise<boolean> {
  const left = await sql`INSERT INTO commit_marks (id) VALUES (${id}) ON CONFLICT DO NOTHING`;
  return left.count > 0;
}

/** Returns true if a transaction that can no longer run was committed. */
export async function isCommitMarkLeft(sql: Database, id: string): Promise<boolean> {
  const [mark] = await sql`SELECT 1 FROM commit_marks WHERE id = ${id}`;
  return mark !== undefined;
}

const REMOVAL_BATCH = 10_000;

/**
 * Removes a bounded number of marks that no writer needs any longer. Returns true if there may be more.
 */
export async function removeOldCommitMarks(sql: Database): Promise<boolean> {
  const removed = await sql`DELETE FROM commit_marks WHERE id IN (
    SELECT id FROM commit_marks WHERE marked_at < clock_timestamp() - interval '1 day'
    LIMIT ${REMOVAL_BATCH})`;
  return removed.count === REMOVAL_BATCH;
}
