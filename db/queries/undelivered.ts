import type { Database } from "../client.ts";

/** Whether an instance can write nothing any more; undefined where it is not known here. */
export async function isInstanceDead(sql: Database, id: string): Promise<boolean | undefined> {
  const [row] = await sql<{ alive: boolean }[]>`SELECT alive FROM instances WHERE id = ${id}`;
  return row && !row.alive;
}

/** Those of the requests that will be charged at a checkpoint, unless their instance does it. */
export async function requestsWithAttempts(
  sql: Database,
  requestIds: readonly string[],
): Promise<ReadonlySet<string>> {
  const rows = await sql<{ request_id: string }[]>`SELECT request_id FROM attempts
    WHERE request_id IN (SELECT jsonb_array_elements_text(${JSON.stringify(requestIds)}::text::jsonb))`;
  return new Set(rows.map((row) => row.request_id));
}
