import type { Database, Query } from "../client.ts";
import { orgAccountId } from "../ledger/rows.ts";

/**
 * Returns a text that changes with every transaction and every failed request of an organization.
 */
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

export interface Troubles {
  /** Failed requests since then, by error code, of the last 1,000. */
  readonly failures: readonly { readonly errorCode: string; readonly count: number }[];
  /** Webhooks whose deliveries fail. */
  readonly webhooks: readonly FailingWebhook[];
  /** BYOK keys that their providers reject. */
  readonly providerKeys: readonly { readonly providerId: string; readonly name: string }[];
}

interface FailingWebhook {
  readonly id: string;
  readonly url: string;
  /** Number of attempts for the event that is sent first. */
  readonly attempts: number;
  /** Time of the next attempt. Null if the webhook was disabled because of its failures. */
  readonly nextAttemptAtMs: number | null;
}

const MAX_FAILURES = 1_000;
const MAX_TROUBLES = 5;

/** Returns what an organization may have to look at. */
export async function findTroubles(
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
    sql<{ id: string; url: string; attempts: number; next_attempt_at: Date | null }[]>`
      SELECT w.id, w.url, coalesce(d.attempt_count, 0) AS attempts,
        CASE WHEN w.enabled THEN d.next_attempt_at END AS next_attempt_at
      FROM webhooks w LEFT JOIN LATERAL (
        SELECT attempt_count, next_attempt_at FROM deliveries
        WHERE webhook_id = w.id AND status = 'pending' ORDER BY sequence LIMIT 1
      ) d ON true
      WHERE w.organization_id = ${organizationId}
        AND (w.disabled_by = 'failures' OR (w.enabled AND d.attempt_count > 0))
      ORDER BY w.enabled, w.id LIMIT ${MAX_TROUBLES}`,
    sql<{ provider_id: string; name: string }[]>`
      SELECT provider_id, name FROM provider_keys
      WHERE organization_id = ${organizationId} AND NOT is_valid LIMIT ${MAX_TROUBLES}`,
  ]);
  return {
    failures: failures.map((row) => ({ errorCode: row.error_code, count: row.count })),
    webhooks: webhooks.map((row) => ({
      ...{ id: row.id, url: row.url, attempts: row.attempts },
      nextAttemptAtMs: row.next_attempt_at?.getTime() ?? null,
    })),
    providerKeys: providerKeys.map((row) => ({ providerId: row.provider_id, name: row.name })),
  };
}
