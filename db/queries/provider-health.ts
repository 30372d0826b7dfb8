import type { Database } from "../client.ts";
import { insertOutboxEvents, type OutboxEvent } from "./outbox.ts";

/**
 * Records that a provider fails its health checks, and reports that to every organization with a webhook for the event:
 * once until it is recorded as healthy again, however many instances notice it.
 */
export function noteUnhealthy(
  sql: Database,
  providerId: string,
  eventType: string,
  eventOf: (organizationId: string) => OutboxEvent,
): Promise<void> {
  return sql.begin(async (transaction) => {
    const noted = await transaction`
      INSERT INTO provider_health AS h (provider_id, is_healthy) VALUES (${providerId}, false)
      ON CONFLICT (provider_id) DO UPDATE SET is_healthy = false, changed_at = clock_timestamp()
      WHERE h.is_healthy`;
    if (noted.count === 0) return;
    const subscribed = await transaction<{ organization_id: string }[]>`
      SELECT DISTINCT organization_id FROM webhooks
      WHERE events && ${transaction.array([eventType, "*"])}::text[]`;
    const events = subscribed.map(({ organization_id }) => eventOf(organization_id));
    if (events.length > 0) await insertOutboxEvents(transaction, events);
  });
}

export async function noteHealthy(sql: Database, providerId: string): Promise<void> {
  await sql`UPDATE provider_health SET is_healthy = true, changed_at = clock_timestamp()
    WHERE provider_id = ${providerId} AND NOT is_healthy`;
}
