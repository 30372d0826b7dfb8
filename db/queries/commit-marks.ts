import type { Database, DatabaseTransaction } from "../client.ts";

/**
 * Leaves the mark of the transaction that it runs in. False where an earlier try of the same transaction
 * was committed; one that is still being committed is waited for.
 */
export async function leaveCommitMark(sql: DatabaseTransaction, id: string): Promise<boolean> {
  const left = await sql`INSERT INTO commit_marks (id) VALUES (${id}) ON CONFLICT DO NOTHING`;
  return left.count > 0;
}

/** Whether a transaction was committed that can be under way no more. */
export async function isCommitMarkLeft(sql: Database, id: string): Promise<boolean> {
  const [mark] = await sql`SELECT 1 FROM commit_marks WHERE id = ${id}`;
  return mark !== undefined;
}

const REMOVAL_BATCH = 10_000;

/** No writer asks again after so long. Removes a bounded number; true where there may be more. */
export async function removeOldCommitMarks(sql: Database): Promise<boolean> {
  const removed = await sql`DELETE FROM commit_marks WHERE id IN (
    SELECT id FROM commit_marks WHERE marked_at < clock_timestamp() - interval '1 day'
    LIMIT ${REMOVAL_BATCH})`;
  return removed.count === REMOVAL_BATCH;
}
