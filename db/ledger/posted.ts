import type { Database, DatabaseTransaction } from "../client.ts";

/** Which of these requests have a transaction. */
export async function findPosted(
  sql: Database | DatabaseTransaction,
  requestIds: readonly string[],
): Promise<ReadonlySet<string>> {
  const rows = await sql<{ request_id: string }[]>`SELECT request_id FROM transactions
    WHERE request_id = ANY (${sql.array([...requestIds])}::text[])`;
  return new Set(rows.map((row) => row.request_id));
}
