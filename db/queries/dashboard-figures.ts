import type { Database, Query } from "../client.ts";
import { orgAccountId } from "../ledger/rows.ts";

/** A text that changes with every transaction and every failed request of an organization. */
export function figuresMark(organizationId: string): Query<string> {
  return {
    name: "dashboard-figures-mark",
    tables: ["accounts", "failed_requests"],
    async run(sql) {
      const [row] = await sql<{ sequence: bigint; failure: string | null }[]>`
        SELECT sequence, (SELECT id FROM failed_requests
          WHERE organization_id = ${organizationId} AND NOT is_charged
          ORDER BY position DESC, created_at DESC, id DESC LIMIT 1) AS failure
        FROM accounts WHERE id = ${orgAccountId(organizationId)}`;
      return `${row?.sequence ?? 0n} ${row?.failure ?? ""}`;
    },
  };
}

export interface HourLatency {
  readonly startMs: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
}

const HOUR_MS = 3_600_000;
/** Requests of an hour that its latency is taken from, spread over the hour. */
const SAMPLED_REQUESTS = 200;

/**
 * Latency of charged requests by hour; hours without any are left out. Transactions are numbered without a gap in
 * the order of their times, so that an hour is found by halving, and a sample by its numbers. The limits of one row
 * keep the planner from reading the whole table in place of its index.
 */
export async function latencyByHour(
  sql: Database,
  organizationId: string,
  fromMs: number,
  beforeMs: number,
): Promise<HourLatency[]> {
  const rows = await sql<{ starts_at: Date; p50: number; p95: number }[]>`
    WITH RECURSIVE halving (starts_at, low, high) AS (
      SELECT h, 0::bigint, (
        SELECT coalesce(max(sequence), 0) FROM transactions WHERE organization_id = ${organizationId})
      FROM generate_series(${new Date(fromMs)}::timestamptz, ${new Date(beforeMs)}::timestamptz,
        make_interval(secs => ${HOUR_MS / 1_000})) h
      UNION ALL
      SELECT starts_at, CASE WHEN t.created_at < starts_at THEN (low + high + 1) / 2 ELSE low END,
        CASE WHEN t.created_at < starts_at THEN high ELSE (low + high + 1) / 2 - 1 END
      FROM halving CROSS JOIN LATERAL (
        SELECT created_at FROM transactions
        WHERE organization_id = ${organizationId} AND sequence = (low + high + 1) / 2 LIMIT 1
      ) t
      WHERE low < high
    ), hours AS (
      SELECT starts_at, low AS before_first, lead(low) OVER (ORDER BY starts_at) - low AS count
      FROM halving WHERE low = high
    )
    SELECT starts_at, percentile_disc(0.5) WITHIN GROUP (ORDER BY t.latency_ms) AS p50,
      percentile_disc(0.95) WITHIN GROUP (ORDER BY t.latency_ms) AS p95
    FROM hours CROSS JOIN LATERAL generate_series(0, least(count, ${SAMPLED_REQUESTS}) - 1) place
      CROSS JOIN LATERAL (
        SELECT type, latency_ms FROM transactions WHERE organization_id = ${organizationId}
          AND sequence = before_first + 1 + place * count / least(count, ${SAMPLED_REQUESTS}) LIMIT 1
      ) t
    WHERE count > 0 AND t.type = 'usage' AND t.latency_ms IS NOT NULL
    GROUP BY starts_at ORDER BY starts_at`;
  return rows.map((row) => ({
    startMs: row.starts_at.getTime(),
    p50Ms: row.p50,
    p95Ms: row.p95,
  }));
}

export interface Troubles {
  /** Failed requests since then, by error code, of the last 1,000. */
  readonly failures: readonly { readonly errorCode: string; readonly count: number }[];
  /** Webhooks that were disabled because deliveries failed. */
  readonly webhooks: readonly { readonly id: string; readonly url: string }[];
  /** Own provider keys that their providers refuse. */
  readonly providerKeys: readonly { readonly providerId: string; readonly name: string }[];
}

const MAX_FAILURES = 1_000;
const MAX_TROUBLES = 5;

/** What an organization may have to look at. */
export async function troublesOf(
  sql: Database,
  organizationId: string,
  sinceMs: number,
): Promise<Troubles> {
  const [failures, webhooks, providerKeys] = await Promise.all([
    sql<{ error_code: string; count: number }[]>`
      SELECT error_code, count(*)::integer AS count FROM (
        SELECT error_code, created_at FROM failed_requests
        WHERE organization_id = ${organizationId} AND NOT is_charged
        ORDER BY position DESC, created_at DESC, id DESC LIMIT ${MAX_FAILURES}
      ) latest WHERE created_at >= ${new Date(sinceMs)}
      GROUP BY error_code ORDER BY count DESC, error_code LIMIT ${MAX_TROUBLES}`,
    sql<{ id: string; url: string }[]>`
      SELECT id, url FROM webhooks
      WHERE organization_id = ${organizationId} AND disabled_by = 'failures' LIMIT ${MAX_TROUBLES}`,
    sql<{ provider_id: string; name: string }[]>`
      SELECT provider_id, name FROM provider_keys
      WHERE organization_id = ${organizationId} AND NOT is_valid LIMIT ${MAX_TROUBLES}`,
  ]);
  return {
    failures: failures.map((row) => ({ errorCode: row.error_code, count: row.count })),
    webhooks,
    providerKeys: providerKeys.map((row) => ({ providerId: row.provider_id, name: row.name })),
  };
}
