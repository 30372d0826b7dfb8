import type { Database } from "../../db/client.ts";
import { createOrganization } from "../../db/queries/organization-create.ts";
import { insertWebhook } from "../../db/queries/webhook-write.ts";
import { EVENT_TYPES } from "../../src/lib/event-types.ts";
import { newId } from "../../src/lib/ids.ts";
import { prepareOrganization } from "../../src/services/organizations/new-organization.ts";
import { WebhookSecrets } from "../../src/services/webhooks/webhook-secrets.ts";
import { testKeyring } from "../support/master-key.ts";

export async function addOrganization(sql: Database): Promise<string> {
  const { organization } = prepareOrganization(
    { name: crypto.randomUUID(), plan: "free", startingCreditNano: 0n },
    Date.now(),
  );
  await sql.begin((transaction) => createOrganization(transaction, organization));
  return organization.id;
}

/** Without a URL of its own nothing is ever sent to it. */
export async function addHook(
  sql: Database,
  organizationId: string,
  url = "https://example.com/",
  secret = "0123456789abcdef",
): Promise<string> {
  const id = newId("whk");
  const secrets = new WebhookSecrets(await testKeyring(sql));
  const webhook = {
    id,
    organizationId,
    url,
    events: ["*"],
    description: null,
    enabled: true,
    secret: secrets.sealing(secret),
    createdAtMs: Date.now(),
  };
  await insertWebhook(sql, webhook, 1_000_000);
  return id;
}

/** An organization in a database in which nobody else's webhooks and events are left. */
export async function addOnlyOrganization(sql: Database): Promise<string> {
  await sql`TRUNCATE deliveries, outbox, webhook_queues, webhooks, actor_leases`;
  return addOrganization(sql);
}

/** How many deliveries these webhooks got numbers for. */
export async function numberDeliveries(
  sql: Database,
  hooks: readonly string[],
  limit = 1_000,
): Promise<number> {
  const rows = await sql<{ numbered_count: bigint }[]>`
    SELECT numbered_count FROM number_deliveries(${sql.array([...hooks])}::text[],
      ${sql.array([...EVENT_TYPES])}::text[], ${limit})`;
  return rows.reduce((sum, row) => sum + Number(row.numbered_count), 0);
}

/** One event for each number, in as many transactions as there are calls. */
export async function emit(
  sql: Database,
  organizationId: string,
  numbers: readonly number[],
): Promise<void> {
  const rows = numbers.map((number) => ({
    event_id: newId("evt"),
    organization_id: organizationId,
    type: "key.updated",
    data: { number, at: Date.now() },
  }));
  await sql`INSERT INTO outbox (event_id, organization_id, type, data)
    SELECT event_id, organization_id, type, data
    FROM jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb)
      AS r (event_id text, organization_id text, type text, data jsonb)`;
}
