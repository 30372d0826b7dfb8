import type { Database } from "../../db/client.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import { createOrganization } from "../../db/queries/organizations.ts";
import { sequenceEvents } from "../../db/queries/outbox.ts";
import { insertWebhook } from "../../db/queries/webhooks.ts";
import { prepareOrganization } from "../../src/accounts/organizations/organizations.ts";
import { newId } from "../../src/lib/ids.ts";
import { WebhookSecrets } from "../../src/webhooks/webhook-secrets.ts";
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
  await sql`TRUNCATE deliveries, outbox, webhook_queues, webhooks, actor_leases, unnumbered_events, event_queues`;
  return addOrganization(sql);
}

/** An instance that numbers and does nothing else. */
const NUMBERER = { id: "ins_numberer", epoch: 1n };

/** One turn of numbering, over all organizations. */
export async function numberTurn(sql: Database, maxRows = 2_048, after = "") {
  await insertInstance(sql, NUMBERER).catch(() => {});
  return sequenceEvents(sql, NUMBERER, after, { maxOrganizations: 64, maxRows });
}

/** Numbers all there is. Returns how many deliveries that made. */
export async function numberAll(sql: Database, maxRows?: number): Promise<number> {
  let numbered = 0;
  for (let isMore = true; isMore; ) {
    const turn = await numberTurn(sql, maxRows);
    numbered += turn.numbered;
    isMore = turn.isMore;
  }
  return numbered;
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
