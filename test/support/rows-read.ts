import type { Database, DatabaseTransaction } from "../../db/client.ts";

/**
 * Counts the rows and index entries that a transaction reads: what a plan costs, whatever the machine is doing.
 * Returns the result of `work` and the count.
 */
export async function countRowsRead<Result>(
  sql: Database,
  work: (transaction: Database) => Promise<Result>,
): Promise<{ result: Result; rowsRead: number }> {
  const counted = await sql.begin(async (transaction) => {
    const before = await rowsReadSoFar(transaction);
    const result = await work(transaction as unknown as Database);
    return { result, rowsRead: (await rowsReadSoFar(transaction)) - before };
  });
  return counted as { result: Result; rowsRead: number };
}

async function rowsReadSoFar(sql: DatabaseTransaction): Promise<number> {
  const [row] = await sql<{ rows: number }[]>`
    SELECT sum(pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid))::float8 AS rows
    FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')`;
  return row!.rows;
}
