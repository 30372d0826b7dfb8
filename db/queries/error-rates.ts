import { isErrorRateHigh, type RequestCounts } from "../../src/lib/error-rate.ts";
import type { Database } from "../client.ts";
import { insertOutboxEvents, type OutboxEvent } from "./outbox.ts";

/** Requests of an organization whose error rate has become high. */
export interface HighErrorRate extends RequestCounts {
  readonly organizationId: string;
  readonly sinceMs: number;
  readonly untilMs: number;
}

interface SampleRow {
  readonly organization_id: string;
  /** Null for the first sample. */
  readonly was_high: boolean | null;
  readonly since: Date | null;
  readonly until: Date;
  /** True if the last sample is too old to be compared. */
  readonly is_stale: boolean;
  readonly requests: bigint;
  readonly errors: bigint;
  readonly hour: Date;
  readonly hour_requests: bigint;
  readonly hour_errors: bigint;
}

const PAGE = 200;

/**
 * Takes a sample of the requests of the organizations after this one that can get the event, five minutes after their
 * last sample, and writes the events of those whose error rate has become high. The locks of the samples let two
 * instances do it at the same time. Returns the last organization, or undefined after all.
 */
export function sampleErrorRates(
  sql: Database,
  after: string,
  report: (high: HighErrorRate) => OutboxEvent,
): Promise<string | undefined> {
  return sql.begin(async (transaction) => {
    const organizations = await transaction<{ id: string }[]>`
      SELECT id FROM organizations o WHERE id > ${after}
        AND (EXISTS (SELECT FROM alert_channels c
            WHERE c.organization_id = o.id AND c.enabled AND 'requests' = ANY (c.alerts))
          OR EXISTS (SELECT FROM webhooks w
            WHERE w.organization_id = o.id AND w.events && '{*,requests.error_rate}'::text[]))
      ORDER BY id LIMIT ${PAGE}`;
    const ids = transaction.array(organizations.map(({ id }) => id));
    await transaction`SELECT 1 FROM error_rates WHERE organization_id = ANY (${ids}::text[])
      ORDER BY organization_id FOR UPDATE`;
    // A separate statement, because its snapshot is newer than the locks.
    const rows = await transaction<SampleRow[]>`
      SELECT o.id AS organization_id, e.is_high AS was_high, e.sampled_at AS since, now.at AS until,
        coalesce(e.sampled_at < now.at - interval '15 minutes', false) AS is_stale,
        coalesce(sum(u.requests), 0)::bigint - coalesce(e.requests, 0) AS requests,
        coalesce(sum(u.errors), 0)::bigint - coalesce(e.errors, 0) AS errors,
        now.hour,
        coalesce(sum(u.requests) FILTER (WHERE u.starts_at = now.hour), 0)::bigint AS hour_requests,
        coalesce(sum(u.errors) FILTER (WHERE u.starts_at = now.hour), 0)::bigint AS hour_errors
      FROM unnest(${ids}::text[]) AS o (id)
      CROSS JOIN (SELECT statement_timestamp() AS at, date_trunc('hour', statement_timestamp(), 'UTC') AS hour) now
      LEFT JOIN error_rates e ON e.organization_id = o.id
      LEFT JOIN usage_totals u ON u.organization_id = o.id AND u.kind = 'hour' AND u.value = ''
        AND u.starts_at >= coalesce(e.hour, now.hour)
      WHERE e.sampled_at IS NULL OR e.sampled_at <= now.at - interval '5 minutes'
      GROUP BY o.id, e.organization_id, now.at, now.hour`;
    const samples = rows.map((row) => ({ row, ...judged(row) }));
    await transaction`
      INSERT INTO error_rates (organization_id, hour, requests, errors, sampled_at, is_high)
      SELECT * FROM jsonb_to_recordset(${JSON.stringify(samples.map(storedSample))}::text::jsonb)
        AS s (organization_id text, hour timestamptz, requests bigint, errors bigint, sampled_at timestamptz,
          is_high boolean)
      ORDER BY organization_id
      ON CONFLICT (organization_id) DO UPDATE SET hour = excluded.hour, requests = excluded.requests,
        errors = excluded.errors, sampled_at = excluded.sampled_at, is_high = excluded.is_high`;
    const events = samples.flatMap(({ high }) => (high === undefined ? [] : [report(high)]));
    if (events.length > 0) await insertOutboxEvents(transaction, events);
    return organizations.length < PAGE ? undefined : organizations.at(-1)!.id;
  });
}

function judged(row: SampleRow): { readonly isHigh: boolean; readonly high?: HighErrorRate } {
  const wasHigh = row.was_high ?? false;
  if (row.since === null || row.is_stale) return { isHigh: wasHigh };
  const counts = { requests: Number(row.requests), errors: Number(row.errors) };
  const isHigh = isErrorRateHigh(counts, wasHigh);
  if (!isHigh || wasHigh) return { isHigh };
  const times = { sinceMs: row.since.getTime(), untilMs: row.until.getTime() };
  return { isHigh, high: { organizationId: row.organization_id, ...counts, ...times } };
}

function storedSample({ row, isHigh }: { readonly row: SampleRow; readonly isHigh: boolean }) {
  return {
    organization_id: row.organization_id,
    hour: row.hour,
    requests: row.hour_requests.toString(),
    errors: row.hour_errors.toString(),
    sampled_at: row.until,
    is_high: isHigh,
  };
}
