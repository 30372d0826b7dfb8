import type { Database } from "../client.ts";

/** Milliseconds since the Unix epoch, by the database's clock. */
export async function readDatabaseTime(sql: Database): Promise<number> {
  const [row] = await sql<{ now_ms: number }[]>`
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now_ms`;
  return row!.now_ms;
}
