import type { Database } from "../client.ts";

/** Requests of a key that were admitted within one tenth of a second. */
export interface PastAdmissions {
  readonly keyId: string;
  /** Start of the last of them, milliseconds since the epoch. */
  readonly lastMs: number;
  /** Number of requests. 0 if the key has no limit on requests. */
  readonly count: number;
  /** Number of tokens that they have used. 0 if the key has no limit on tokens. */
  readonly tokens: number;
}

/**
 * Returns charged requests of rate-limited keys that began at `sinceMs` or later, ordered by time. A request's id
 * begins with its time, so this reads a range of the index on request ids, whatever the size of the ledger.
 */
export async function recentAdmissions(sql: Database, sinceMs: number): Promise<PastAdmissions[]> {
  const firstId = `req_${Math.max(0, Math.floor(sinceMs)).toString(16).padStart(12, "0")}`;
  const rows = await sql<{ key_id: string; last_ms: number; count: number; tokens: number }[]>`
    SELECT key_id, max(ms)::float8 AS last_ms,
      (count(*) FILTER (WHERE rate_limit_rpm IS NOT NULL))::int AS count,
      coalesce(sum(tokens) FILTER (WHERE rate_limit_tpm IS NOT NULL), 0)::float8 AS tokens
    FROM (
      SELECT key_id, ('x' || substr(request_id, 5, 12))::bit(48)::bigint AS ms,
        coalesce(prompt_tokens, 0)::bigint + coalesce(completion_tokens, 0) AS tokens
      FROM transactions
      WHERE request_id >= ${firstId} AND request_id < 'req_g'
        -- A pattern match would take as long as the rest of the query.
        AND translate(substr(request_id, 5, 12), '0123456789abcdef', '') = ''
    ) charged
    JOIN api_keys ON api_keys.id = charged.key_id
      AND (rate_limit_rpm IS NOT NULL OR rate_limit_tpm IS NOT NULL)
    GROUP BY key_id, ms / 100
    ORDER BY last_ms`;
  return rows.map(({ key_id: keyId, last_ms: lastMs, ...rest }) => ({ keyId, lastMs, ...rest }));
}
