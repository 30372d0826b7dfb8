import type { Database, DatabaseTransaction } from "../client.ts";

/** Which of these requests have a transaction. */
export async function findPosted(
  sql: Database | DatabaseTransaction,
  requestIds: readonly string[],
): Promise<ReadonlySet<string>> {
  // As JSON: on a connection that has not loaded its types yet the driver sends no array.
  const rows = await sql<{ request_id: string }[]>`SELECT request_id FROM transactions
    WHERE request_id IN (SELECT jsonb_array_elements_text(${JSON.stringify(requestIds)}::text::jsonb))`;
  return new Set(rows.map((row) => row.request_id));
}
