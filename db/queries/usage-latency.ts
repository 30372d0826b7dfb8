import type { Database } from "../client.ts";

export interface LatencyListing {
  readonly organizationId: string;
  readonly interval: "hour" | "day" | "month";
  /** The listing begins with the hour of this time. */
  readonly fromMs: number | undefined;
  /** Hours that begin before it are listed. */
  readonly beforeMs: number | undefined;
  readonly limit: number;
  readonly offset: number;
}

export interface Latencies {
  /** Answered requests, with a status below 400. */
  readonly requests: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
}

export interface LatencyRow {
  readonly startMs: number;
  readonly total: Latencies;
  /** Latencies of streams. */
  readonly firstToken: Latencies | undefined;
}

const HOUR_MS = 3_600_000;

/**
 * Lists latencies, earliest first. Quantiles are read from buckets, so they are accurate to five per cent.
 */
export async function listLatencies(
  sql: Database,
  listing: LatencyListing,
): Promise<{ rows: LatencyRow[]; hasMore: boolean }> {
  const { organizationId, interval, fromMs, beforeMs, limit, offset } = listing;
  const rows = await sql<QuantileRow[]>`
    WITH counted AS (
      SELECT date_trunc(${interval}, hour, 'UTC') AS starts_at, measure, bucket, sum(requests) AS requests
      FROM usage_latencies
      WHERE organization_id = ${organizationId} AND measure IN ('total', 'first_token')
        ${fromMs === undefined ? sql`` : sql`AND hour > ${new Date(fromMs - HOUR_MS)}`}
        ${beforeMs === undefined ? sql`` : sql`AND hour < ${new Date(beforeMs)}`}
      GROUP BY 1, 2, 3
    ), running AS (
      SELECT *, sum(requests) OVER (PARTITION BY starts_at, measure ORDER BY bucket) AS up_to,
        sum(requests) OVER (PARTITION BY starts_at, measure) AS total
      FROM counted
    ), quantiles AS (
      SELECT starts_at, measure, max(total)::float8 AS requests,
        min(bucket) FILTER (WHERE up_to >= total * 0.5) AS p50,
        min(bucket) FILTER (WHERE up_to >= total * 0.95) AS p95
      FROM running GROUP BY starts_at, measure
    )
    SELECT starts_at, t.requests, t.p50, t.p95, f.requests AS first_requests, f.p50 AS first_p50,
      f.p95 AS first_p95
    FROM (SELECT * FROM quantiles WHERE measure = 'total') t
    LEFT JOIN (SELECT * FROM quantiles WHERE measure = 'first_token') f USING (starts_at)
    ORDER BY starts_at LIMIT ${limit + 1} OFFSET ${offset}`;
  return { rows: rows.slice(0, limit).map(latencyRow), hasMore: rows.length > limit };
}

interface QuantileRow {
  readonly starts_at: Date;
  readonly requests: number;
  readonly p50: number;
  readonly p95: number;
  readonly first_requests: number | null;
  readonly first_p50: number | null;
  readonly first_p95: number | null;
}

function latencyRow(row: QuantileRow): LatencyRow {
  return {
    startMs: row.starts_at.getTime(),
    total: { requests: row.requests, p50Ms: middleMs(row.p50), p95Ms: middleMs(row.p95) },
    firstToken: latencies(row.first_requests, row.first_p50, row.first_p95),
  };
}

function latencies(
  requests: number | null,
  p50: number | null,
  p95: number | null,
): Latencies | undefined {
  if (requests === null || p50 === null || p95 === null) return undefined;
  return { requests, p50Ms: middleMs(p50), p95Ms: middleMs(p95) };
}

const BUCKETS_AN_OCTAVE = 8;

/** Returns the middle of a bucket, as usage_bucket defines it. */
export function middleMs(bucket: number): number {
  if (bucket === 0) return 0;
  return Math.round(2 ** ((bucket - 0.5) / BUCKETS_AN_OCTAVE));
}
