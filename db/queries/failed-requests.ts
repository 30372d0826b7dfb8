import type { RecordedRouting } from "../../src/lib/request-log.ts";
import type { Database } from "../client.ts";

export interface FailedRequest {
  readonly id: string;
  readonly organizationId: string;
  readonly keyId: string;
  readonly model: string | null;
  readonly provider: string | null;
  readonly status: number;
  readonly errorCode: string;
  readonly user: string | null;
  readonly sessionId: string | null;
  readonly tags?: readonly string[] | undefined;
  readonly latencyMs: number;
  /** Milliseconds from the request to its first call of a provider. Undefined if there was none. */
  readonly queueMs?: number | undefined;
  readonly routing?: RecordedRouting | undefined;
  /**
   * Milliseconds since it ended. The database computes the time by its own clock, as for charges.
   */
  readonly ageMs: number;
}

/** Largest number of transactions that are read to find the one that a failure follows. */
const MAX_LATER_CHARGES = 1_000;

/** Skips rows that exist already. */
export async function insertFailedRequests(
  sql: Database,
  requests: readonly FailedRequest[],
): Promise<void> {
  const rows = requests.map((request) => ({
    id: request.id,
    organization_id: request.organizationId,
    key_id: request.keyId,
    model: request.model,
    provider: request.provider,
    status: request.status,
    error_code: request.errorCode,
    user_name: request.user,
    session_id: request.sessionId,
    tags: request.tags,
    latency_ms: request.latencyMs,
    queue_ms: request.queueMs,
    routing: request.routing,
    age_ms: request.ageMs,
  }));
  await sql`INSERT INTO failed_requests (id, organization_id, key_id, position, model, provider, status,
      error_code, user_name, session_id, tags, latency_ms, queue_ms, routing, is_charged, created_at)
    SELECT id, organization_id, key_id,
      coalesce(
        (SELECT sequence FROM (
          SELECT sequence, created_at FROM transactions t
          WHERE t.organization_id = failed.organization_id
          ORDER BY sequence DESC LIMIT ${MAX_LATER_CHARGES}
        ) latest WHERE created_at <= failed.ended_at ORDER BY sequence DESC LIMIT 1),
        (SELECT greatest(0, max(sequence) - ${MAX_LATER_CHARGES}) FROM transactions t
          WHERE t.organization_id = failed.organization_id),
        0),
      model, provider, status, error_code, user_name, session_id, tags, latency_ms, queue_ms, routing,
      EXISTS (SELECT FROM transactions t WHERE t.request_id = failed.id),
      date_trunc('milliseconds', ended_at)
    FROM (
      SELECT r.*, statement_timestamp() - make_interval(secs => age_ms / 1000) AS ended_at
      FROM jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) AS r (id text,
        organization_id text, key_id text, model text, provider text, status integer, error_code text,
        user_name text, session_id text, tags jsonb, latency_ms integer, queue_ms integer,
        routing jsonb, age_ms double precision)
    ) failed
    ON CONFLICT (id) DO NOTHING`;
}

const REMOVAL_BATCH = 10_000;

/** Removes a bounded number of rows that are 30 days old. Returns true if there may be more. */
export async function removeOldFailedRequests(sql: Database): Promise<boolean> {
  const removed = await sql`DELETE FROM failed_requests WHERE id IN (
    SELECT id FROM failed_requests WHERE created_at < clock_timestamp() - interval '30 days'
    LIMIT ${REMOVAL_BATCH})`;
  return removed.count === REMOVAL_BATCH;
}
