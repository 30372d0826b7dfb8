import type { PreparedOrganization } from "../../src/accounts/organizations/organizations.ts";
import { joined } from "../people/people.ts";
import { uploaded } from "../support/files-gateway.ts";
import { lessonsText, startTuningGateway, type TuningGateway } from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";
import { LOCAL_DELIVERY, startReceiver } from "../webhooks/receiver.ts";

/** Ids of the objects of one organization, by their kinds. */
export type Objects = Readonly<Record<ObjectKind, string>>;

export type ObjectKind =
  | "key"
  | "budget"
  | "team"
  | "member"
  | "invitation"
  | "webhook"
  | "alertChannel"
  | "delivery"
  | "file"
  | "job"
  | "model"
  | "response"
  | "background"
  | "conversation"
  | "item"
  | "store"
  | "batch"
  | "requests"
  | "requestBatch"
  | "preset"
  | "guardrail"
  | "providerKey"
  | "method"
  | "request"
  | "transaction"
  | "month";

export interface IsolationGateway extends TuningGateway {
  readonly stranger: PreparedOrganization;
  /** Of the gateway's first organization. */
  readonly objects: Objects;
}

/** A word in the names and texts of these objects: an answer that has it shows something of them. */
export const MARK = "zebrafinch";
const CACHED = { "x-gateway-cache": "on" };
export const CHAT = { model: "sandbox/chat", messages: [{ role: "user", content: MARK }] };

/** Makes the organization older than the others. Returns a month (YYYY-MM) of which it alone has a statement. */
async function olderMonth({ sql, organizationId }: TuningGateway): Promise<string> {
  const [row] = await sql<{ month: string }[]>`
    UPDATE organizations SET created_at = created_at - interval '2 months' WHERE id = ${organizationId}
    RETURNING to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM') AS month`;
  return row!.month;
}

/** A gateway whose first organization has an object of every kind; the stranger has its two keys. */
export async function startIsolationGateway(
  environment: Readonly<Record<string, string>> = {},
): Promise<IsolationGateway> {
  const gateway = await startTuningGateway({ environment: { ...LOCAL_DELIVERY, ...environment } });
  const receiver = startReceiver();
  const stranger = await gateway.addOrganization();

  async function create(path: string, body: unknown, key = gateway.managementKey) {
    const response = await gateway.request("POST", path, body, { key });
    const text = await response.text();
    if (!response.ok) throw new Error(`${path}: ${text}`);
    return JSON.parse(text) as { id: string; output?: { id: string }[] };
  }
  const made = (path: string, body: unknown) => create(path, body, gateway.secretKey);

  const webhook = await create("/v1/webhooks", {
    url: receiver.url,
    events: ["key.created"],
    description: MARK,
  });
  const alertChannel = await create("/v1/alert_channels", {
    ...{ name: MARK, type: "slack", url: receiver.url, alerts: ["webhooks"] },
  });
  const team = await create("/v1/teams", { name: MARK, daily_budget_usd: 5 });
  const { state } = await joined(gateway, "developer", { email: `${MARK}@example.com` });
  const invitation = await create("/v1/invitations", {
    ...{ email: `invited.${MARK}@example.com`, role: "viewer" },
  });
  await create("/v1/scim_tokens", { name: `${MARK} directory` });
  const key = await create("/v1/keys", { name: MARK, rate_limit_rpm: 60 });
  const budget = await create("/v1/budgets", { subject: { type: "user", value: MARK } });
  const file = await uploaded(gateway, "fine-tune", lessonsText(), { filename: `${MARK}.jsonl` });
  const text = await uploaded(gateway, "assistants", MARK, { filename: `${MARK}.txt` });
  const store = await made("/v1/vector_stores", { name: MARK, file_ids: [text.id] });
  const batch = await made(`/v1/vector_stores/${store.id}/file_batches`, { file_ids: [file.id] });
  const line = { custom_id: MARK, method: "POST", url: "/v1/chat/completions", body: CHAT };
  const requests = await uploaded(gateway, "batch", JSON.stringify(line), { filename: MARK });
  const requestBatch = await made("/v1/batches", {
    ...{ input_file_id: requests.id, endpoint: line.url, completion_window: "24h" },
    metadata: { name: MARK },
  });
  const job = await gateway.tune(undefined, { metadata: { name: MARK } });
  const answered = await made("/v1/responses", { model: "sandbox/chat", input: MARK });
  const background = await made("/v1/responses", {
    model: "sandbox/chat",
    input: MARK,
    background: true,
  });
  const conversation = await made("/v1/conversations", {
    metadata: { name: MARK },
    items: [{ role: "user", content: MARK }],
  });
  const preset = await create("/v1/presets", { name: MARK, system: MARK });
  const guardrail = await create("/v1/guardrails", {
    name: MARK,
    rules: [{ type: "pattern", on: ["input"], action: "block", pattern: "nightjar" }],
  });
  const providerKey = await create("/v1/provider_keys", {
    provider: "trainer",
    key: "sk-of-the-organization",
    name: MARK,
  });
  const method = await create("/v1/billing/payment_methods", { payment_method: "pm_card_visa" });
  const cached = await gateway.request("POST", "/v1/chat/completions", CHAT, { headers: CACHED });
  const request = cached.headers.get("x-gateway-request-id")!;
  await cached.text();

  const read = async (path: string) => (await gateway.request("GET", path)).json();
  const { data: items } = await read(`/v1/conversations/${conversation.id}/items`);
  const { data: transactions } = await read("/v1/credits/transactions?type=usage");
  const deliveries = `/v1/webhooks/${webhook.id}/deliveries`;
  await until("the event is delivered", async () => (await read(deliveries)).data.length > 0);
  const { data: delivered } = await read(deliveries);
  const ended = await gateway.ended(job.id);
  return {
    ...gateway,
    stranger,
    objects: {
      key: key.id,
      budget: budget.id,
      team: team.id,
      member: state.person.member_id,
      invitation: invitation.id,
      webhook: webhook.id,
      alertChannel: alertChannel.id,
      delivery: delivered[0].id,
      file: text.id,
      job: job.id,
      model: ended.fine_tuned_model!,
      response: answered.id,
      background: background.id,
      conversation: conversation.id,
      item: items[0].id,
      store: store.id,
      batch: batch.id,
      requests: requests.id,
      requestBatch: requestBatch.id,
      preset: preset.id,
      guardrail: guardrail.id,
      providerKey: providerKey.id,
      method: method.id,
      request,
      transaction: transactions[0].id,
      month: await olderMonth(gateway),
    },
    async stop() {
      await gateway.stop();
      await receiver.stop();
    },
  };
}
