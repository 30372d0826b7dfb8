import type { Database } from "../client.ts";

/** How many other connections the server has at the moment. */
export async function otherClients(sql: Database): Promise<number> {
  const [row] = await sql<{ others: bigint }[]>`
    SELECT count(*) AS others FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`;
  return Number(row!.others);
}
