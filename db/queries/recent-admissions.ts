import type { Database } from "../client.ts";

/** Requests of a key that were admitted within one tenth of a second. */
export interface PastAdmissions {
  readonly keyId: string;
  /** When the last of them began, milliseconds since the epoch. */
  readonly lastMs: number;
  readonly count: number;
}

/**
 * Charged requests of rate-limited keys that began at `sinceMs` or later, in the order of time. A request's id
 * begins with its time, so this reads a range of the index on request ids, however long the ledger is.
 */
export async function recentAdmissions(sql: Database, sinceMs: number): Promise<PastAdmissions[]> {
  const firstId = `req_${Math.max(0, Math.floor(sinceMs)).toString(16).padStart(12, "0")}`;
  const rows = await sql<{ key_id: string; last_ms: number; count: number }[]>`
    SELECT key_id, max(ms)::float8 AS last_ms, count(*)::int AS count
    FROM (
      SELECT key_id, ('x' || substr(request_id, 5, 12))::bit(48)::bigint AS ms
      FROM transactions
      WHERE request_id >= ${firstId} AND request_id < 'req_g'
        -- A pattern would take as long as all the rest together.
        AND translate(substr(request_id, 5, 12), '0123456789abcdef', '') = ''
    ) charged
    WHERE EXISTS (
      SELECT FROM api_keys WHERE id = charged.key_id AND rate_limit_rpm IS NOT NULL
    )
    GROUP BY key_id, ms / 100
    ORDER BY last_ms`;
  return rows.map((row) => ({ keyId: row.key_id, lastMs: row.last_ms, count: row.count }));
}
