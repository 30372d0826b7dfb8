import type { Database } from "../client.ts";

/** The event types that an organization's webhooks want, disabled ones included; `*` stands for all. */
export async function subscribedTypes(sql: Database, organizationId: string): Promise<string[]> {
  const rows = await sql<{ type: string }[]>`
    SELECT DISTINCT unnest(events) AS type FROM webhooks WHERE organization_id = ${organizationId}`;
  return rows.map(({ type }) => type);
}
