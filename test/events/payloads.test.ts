import { afterAll, beforeAll, expect, test } from "bun:test";
import { describeSchema } from "../../src/http/openapi-schemas.ts";
import { EVENT_DEFINITIONS, EVENT_TYPES, sampleData } from "../../src/lib/events/event-types.ts";
import { FAILING_SUFFIX } from "../../src/sandbox/tuning/fine-tuning-provider.ts";
import { addSecretKey } from "../support/api-keys.ts";
import { chatLine, createBatch } from "../support/batches.ts";
import { payloadFaults } from "../support/event-payload.ts";
import { uploaded } from "../support/files-gateway.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { fetchResolvedDocument } from "../support/openapi-document.ts";
import { lessonsText, SANDBOX_BASE } from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";

/** Types whose cause the gateway does not have yet: they can be subscribed to and tested. */
const NOT_EMITTED = ["cache.purged"];
/** Types whose payload the tests of their cause check. */
const CHECKED_ELSEWHERE = [
  "provider_key.invalid",
  "endpoint.unhealthy",
  "guardrail.triggered",
  "credits.replenish_failed",
  "payment.failed",
  "payment.disputed",
  "requests.error_rate",
  "webhook.disabled",
];

interface DescribedEvent {
  readonly post: {
    readonly requestBody: {
      readonly content: {
        readonly "application/json": { readonly schema: { readonly properties: { data: object } } };
      };
    };
  };
}

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({ environment: { GATEWAY_COMPLETION_SUCCESS_SAMPLE: "1" } });
});
afterAll(() => gateway.stop());

test("every sample has the payload of its type, and says that it is a test", () => {
  for (const type of EVENT_TYPES) {
    const { test: isTest, ...data } = sampleData(type);
    expect({ isTest, faults: payloadFaults(type, data) }).toEqual({ isTest: true, faults: [] });
  }
});

test("every type is described among the webhooks of the API's description", async () => {
  const { webhooks } = await fetchResolvedDocument<{ webhooks: Record<string, DescribedEvent> }>(
    gateway.baseUrl,
  );
  expect(Object.keys(webhooks)).toEqual([...EVENT_TYPES]);
  for (const type of EVENT_TYPES) {
    const { schema } = webhooks[type]!.post.requestBody.content["application/json"];
    const { payload } = EVENT_DEFINITIONS.get(type)!;
    expect(schema.properties.data).toEqual(describeSchema(payload));
  }
});

test("every event that the gateway emits has the payload of its type", async () => {
  const poor = await gateway.addOrganization({ creditUsd: 1.000_001 });
  for (const key of [gateway.managementKey, poor.managementKey]) {
    const hook = { url: "https://receiver.invalid/hook", events: ["*"] };
    expect((await gateway.request("POST", "/v1/webhooks", hook, { key })).status).toBe(201);
  }
  await changeKeys();
  await callModels(poor.secretKey);
  await train("good");
  await train(FAILING_SUFFIX);
  await runBatches();
  const emitted = EVENT_TYPES.filter(
    (type) => ![...NOT_EMITTED, ...CHECKED_ELSEWHERE].includes(type),
  ).sort();
  await until("every type was emitted", async () => {
    const types = await gateway.sql<{ type: string }[]>`SELECT DISTINCT type FROM outbox`;
    return Bun.deepEquals(types.map(({ type }) => type).sort(), emitted);
  });
  const events = await gateway.sql<
    { type: string; data: unknown }[]
  >`SELECT type, data FROM outbox`;
  expect(events.flatMap(({ type, data }) => payloadFaults(type, data))).toEqual([]);
});

async function changeKeys(): Promise<void> {
  const key = gateway.managementKey;
  const created = await gateway.request(
    "POST",
    "/v1/keys",
    { name: "Ada", scopes: ["models:read"] },
    { key },
  );
  const { id } = await created.json();
  await gateway.request("PATCH", `/v1/keys/${id}`, { rate_limit_rpm: 5 }, { key });
  await gateway.request("DELETE", `/v1/keys/${id}`, undefined, { key });
}

async function callModels(poorKey: string): Promise<void> {
  const exhausted = await addSecretKey(gateway, { dailyBudgetNano: 0n });
  const chat = (key: string, model: string) =>
    gateway.request(
      "POST",
      "/v1/chat/completions",
      { model, messages: [{ role: "user", content: "Hello" }] },
      { key },
    );
  expect((await chat(gateway.secretKey, "sandbox/chat")).status).toBe(200);
  expect((await chat(gateway.secretKey, "sandbox/error-500")).status).toBe(502);
  expect((await chat(exhausted, "sandbox/chat")).status).toBe(402);
  expect((await chat(poorKey, "sandbox/chat")).status).toBe(200);
  const init = { key: gateway.managementKey };
  const limited = { name: "limited", daily_budget_usd: 1 };
  const { id, key } = await (await gateway.request("POST", "/v1/keys", limited, init)).json();
  expect((await chat(key, "sandbox/chat")).status).toBe(200);
  await gateway.request("PATCH", `/v1/keys/${id}`, { daily_budget_usd: 0.000_000_1 }, init);
}

async function runBatches(): Promise<void> {
  await createBatch(gateway, chatLine("one"));
  await createBatch(gateway, chatLine("one") + chatLine("one"));
}

async function train(suffix: string): Promise<void> {
  const file = await uploaded(gateway, "fine-tune", lessonsText());
  const job = { model: SANDBOX_BASE, training_file: file.id, suffix };
  const ordered = await gateway.request("POST", "/v1/fine_tuning/jobs", job);
  expect(ordered.status).toBe(200);
}
