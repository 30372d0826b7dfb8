import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { payloadFaults } from "../support/event-payload.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { addOperator } from "../support/operator-keys.ts";
import {
  readEvents,
  type SayingProvider,
  startSayingProvider,
} from "../support/saying-provider.ts";
import { until } from "../support/until.ts";

const EMAIL = "ada.lovelace@example.com";
const CARD = "4111 1111 1111 1111";
const LONG = "lorem ipsum dolor ".repeat(5_000);

let gateway: TestGateway;
let provider: SayingProvider;
let names = 0;

beforeAll(async () => {
  provider = startSayingProvider();
  const endpoints = (model: string) => [{ provider: "house", model }];
  gateway = await startTestGateway({
    configuration: {
      providers: [
        { id: "house", type: "openai-compatible", base_url: provider.baseUrl, api_key: "k" },
      ],
      models: [
        {
          ...{
            id: "test/chat",
            category: "chat",
            context_length: 1_000_000,
            max_output_tokens: 4096,
          },
          ...{ input_cost_per_token: 1e-9, output_cost_per_token: 1e-6 },
          ...{ capabilities: ["streaming", "function_calling"], endpoints: endpoints("chat") },
        },
        {
          ...{ id: "test/embed", category: "embedding", context_length: 8_192 },
          ...{ input_cost_per_token: 1e-9, endpoints: endpoints("embed") },
        },
      ],
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await provider.stop();
});

type Rule = Record<string, unknown>;

async function create(...rules: Rule[]): Promise<string> {
  const response = await gateway.request(
    "POST",
    "/v1/guardrails",
    { name: `guardrail ${names++}`, rules },
    { key: gateway.managementKey },
  );
  expect([response.status, response.status === 201 ? "" : await response.clone().text()]).toEqual([
    201,
    "",
  ]);
  return ((await response.json()) as { id: string }).id;
}

interface Asked {
  readonly status: number;
  readonly text: string;
}

async function ask(path: string, body: object, key = gateway.secretKey): Promise<Asked> {
  const response = await gateway.request("POST", path, body, { key });
  return { status: response.status, text: await response.text() };
}

/** A question with this text to each interface that has texts. */
const inputs = (content: string): [path: string, body: Record<string, unknown>][] => [
  ["/v1/chat/completions", { model: "test/chat", messages: [{ role: "user", content }] }],
  ["/v1/messages", { model: "test/chat", max_tokens: 50, messages: [{ role: "user", content }] }],
  ["/v1/responses", { model: "test/chat", input: content }],
];

const PII = { type: "pii", on: ["input", "output"] };

describe("the collection", () => {
  test.each([
    ["no rules", { rules: [] }, "rules"],
    ["an unknown type", { rules: [{ type: "magic" }] }, "rules.0.type"],
    ["a pattern without one", { rules: [{ type: "pattern" }] }, "rules.0.pattern"],
    ["a backreference", { rules: [{ type: "pattern", pattern: "(a)\\1" }] }, "rules.0.pattern"],
    ["a lookahead", { rules: [{ type: "pattern", pattern: "a(?=b)" }] }, "rules.0.pattern"],
    ["what is no pattern", { rules: [{ type: "pattern", pattern: "(" }] }, "rules.0.pattern"],
    ["a pattern of nothing", { rules: [{ type: "pattern", pattern: "a*" }] }, "rules.0.pattern"],
    [
      "a long pattern",
      { rules: [{ type: "pattern", pattern: "a".repeat(1_001) }] },
      "rules.0.pattern",
    ],
    [
      "a pattern that unfolds",
      {
        rules: [
          {
            type: "pattern",
            pattern: "abcdefgh"
              .split("")
              .map((one) => `${one}{1000}`)
              .join("|"),
          },
        ],
      },
      "rules.0.pattern",
    ],
    ["an unknown entity", { rules: [{ ...PII, entities: ["shoe_size"] }] }, "rules.0.entities.0"],
    [
      "entities of a pattern",
      { rules: [{ type: "pattern", pattern: "a", entities: ["email"] }] },
      "rules.0.entities",
    ],
  ])("%s is refused when a guardrail is made", async (_, body, param) => {
    const response = await gateway.request(
      "POST",
      "/v1/guardrails",
      { name: `guardrail ${names++}`, ...body },
      { key: gateway.managementKey },
    );
    const { error } = await expectError(response, 400, "invalid_body");
    expect(error.param).toBe(param);
  });

  test("a change holds for the next request, and an unknown guardrail is 404", async () => {
    const guardrail = await create({ type: "pattern", pattern: "alpha" });
    for (const [path, body] of inputs("say alpha")) {
      expect((await ask(path, { ...body, guardrail })).status).toBe(400);
      expect((await ask(path, { ...body, guardrail: "none" })).status).toBe(404);
    }
    const key = gateway.managementKey;
    const rules = [{ type: "pattern", pattern: "beta" }];
    await gateway.request("PATCH", `/v1/guardrails/${guardrail}`, { rules }, { key });
    for (const [path, body] of inputs("say alpha")) {
      expect((await ask(path, { ...body, guardrail })).status).toBe(200);
    }
    const foreign = await gateway.addOrganization();
    const [path, body] = inputs("hello")[0]!;
    expect((await ask(path, { ...body, guardrail }, foreign.secretKey)).status).toBe(404);
  });
});

describe.each([
  ["short", ""],
  ["long", LONG],
])("input in a %s body", (_, padding) => {
  test("what blocks it is 400 and costs nothing, and no provider is called", async () => {
    const guardrail = await create({ ...PII, action: "block" });
    const calls = provider.calls.length;
    for (const [path, body] of inputs(`${padding}Write to ${EMAIL}, please.`)) {
      const { status, text } = await ask(path, { ...body, guardrail });
      expect([path, status]).toEqual([path, 400]);
      expect(text).toContain("content_policy_violation");
      expect(text).not.toContain("lovelace");
    }
    expect(provider.calls).toHaveLength(calls);
    await expectBooksClosed(gateway);
    expect(gateway.logLines.join("")).not.toContain("lovelace");
  });

  test("what is redacted in it does not reach the provider", async () => {
    const guardrail = await create({ ...PII, action: "redact" });
    for (const [path, body] of inputs(`${padding}Write to ${EMAIL}, card ${CARD}.`)) {
      const { status } = await ask(path, { ...body, guardrail });
      expect([path, status]).toEqual([path, 200]);
      const sent = JSON.stringify(provider.calls.at(-1));
      expect(sent).toContain("Write to [EMAIL], card [CREDIT_CARD].");
      expect(sent).not.toContain("lovelace");
    }
  });
});

describe("texts of a request", () => {
  const redacts = () => create({ ...PII, action: "redact" });
  const sentOf = async (messages: object[]) => {
    const guardrail = await redacts();
    const asked = await ask("/v1/chat/completions", { model: "test/chat", messages, guardrail });
    expect(asked.status).toBe(200);
    return (provider.calls.at(-1) as { messages: Record<string, unknown>[] }).messages;
  };

  test("parts that follow each other are looked through together", async () => {
    const parts = ["My card is 4111 11", "11 1111 11", "11, thanks"];
    const content = parts.map((text) => ({ type: "text", text }));
    const [message] = await sentOf([{ role: "user", content }]);
    const texts = (message!.content as { text: string }[]).map(({ text }) => text);
    expect(texts).toEqual(["My card is [CREDIT_CARD]", "", ", thanks"]);
  });

  test("calls of tools and what they gave are texts, behind escapes and as numbers too", async () => {
    const given = '{"to":"ada\\u002elovelace\\u0040example.com","card":4111111111111111}';
    const call = { id: "c1", type: "function", function: { name: "send", arguments: given } };
    const messages = await sentOf([
      { role: "user", content: "go" },
      { role: "assistant", content: null, tool_calls: [call] },
      { role: "tool", tool_call_id: "c1", content: `sent to ${EMAIL}` },
    ]);
    const [sent] = messages[1]!.tool_calls as (typeof call)[];
    expect(JSON.parse(sent!.function.arguments)).toEqual({ to: "[EMAIL]", card: "[CREDIT_CARD]" });
    expect(messages[2]!.content).toBe("sent to [EMAIL]");
  });

  test("embeddings are of what is left", async () => {
    const guardrail = await redacts();
    const body = { model: "test/embed", input: [`From ${EMAIL}`, "plain"], guardrail };
    expect((await ask("/v1/embeddings", body)).status).toBe(200);
    expect(provider.calls.at(-1)!.input).toEqual(["From [EMAIL]", "plain"]);
    const blocking = await create({ ...PII, action: "block" });
    expect((await ask("/v1/embeddings", { ...body, guardrail: blocking })).status).toBe(400);
  });
});

describe("output", () => {
  test("a blocked answer is 400 and charged, whole", async () => {
    const guardrail = await create({ ...PII, on: ["output"], action: "block" });
    provider.says = `Write to ${EMAIL}.`;
    for (const [path, body] of inputs("who?")) {
      const [before] = await gateway.sql<
        { n: number }[]
      >`SELECT count(*)::int AS n FROM transactions`;
      const { status, text } = await ask(path, { ...body, guardrail });
      expect([path, status]).toEqual([path, 400]);
      expect(text).not.toContain("lovelace");
      const [row] = await gateway.sql<{ n: number }[]>`SELECT count(*)::int AS n FROM transactions`;
      expect(row!.n).toBe(before!.n + 1);
    }
    await expectBooksClosed(gateway);
  });

  test("a redacted answer is whole, with what is redacted", async () => {
    const guardrail = await create({ ...PII, on: ["output"], action: "redact" });
    provider.says = `Write to ${EMAIL} or pay with ${CARD}.`;
    for (const [path, body] of inputs("who?")) {
      const { status, text } = await ask(path, { ...body, guardrail });
      expect([path, status]).toEqual([path, 200]);
      expect(text).toContain("Write to [EMAIL] or pay with [CREDIT_CARD].");
    }
  });

  test("streams cut at any size leak nothing, redacted or blocked", async () => {
    const redacting = await create({ ...PII, on: ["output"], action: "redact" });
    const blocking = await create({ ...PII, on: ["output"], action: "block" });
    provider.says = `Write to ${EMAIL} or pay with ${CARD}, and then some more words follow it.`;
    for (const size of [1, 2, 3, 5, 8, 13, 40, 200]) {
      provider.size = size;
      for (const [path, body] of inputs("who?")) {
        const redacted = await ask(path, { ...body, guardrail: redacting, stream: true });
        expect([size, path, readEvents(path, redacted.text)]).toEqual([
          size,
          path,
          {
            said: "Write to [EMAIL] or pay with [CREDIT_CARD], and then some more words follow it.",
            failed: false,
          },
        ]);
        const blocked = await ask(path, { ...body, guardrail: blocking, stream: true });
        const { said, failed } = readEvents(path, blocked.text);
        expect([path, failed, "Write to ".startsWith(said), failed ? "" : blocked.text]).toEqual([
          ...[path, true, true, ""],
        ]);
        expect(blocked.text).toContain("content_policy_violation");
        expect(blocked.text).not.toContain("[DONE]\n\n[DONE]");
        expect(blocked.text).not.toContain("lovelace");
      }
    }
    await expectBooksClosed(gateway);
  });

  test("reasoning and calls of tools in streams are output too", async () => {
    const guardrail = await create({ ...PII, on: ["output"], action: "redact" });
    const cut = (text: string) => text.match(/.{1,3}/g)!;
    provider.deltas = [
      ...cut(`I know ${EMAIL} by heart.`).map((reasoning) => ({ reasoning })),
      {
        tool_calls: [
          { index: 0, id: "c", type: "function", function: { name: "pay", arguments: "" } },
        ],
      },
      ...cut(`{"card":${CARD.replaceAll(" ", "")},"to":"ada\\u0040example.com"}`).map((text) => ({
        tool_calls: [{ index: 0, function: { arguments: text } }],
      })),
    ];
    const [path, body] = inputs("pay")[0]!;
    const { text } = await ask(path, { ...body, guardrail, stream: true });
    provider.deltas = undefined;
    let reasoning = "";
    let json = "";
    for (const line of text.split("\n")) {
      if (!line.startsWith("data: {")) continue;
      const { choices } = JSON.parse(line.slice(6)) as {
        choices: {
          delta: { reasoning?: string; tool_calls?: { function: { arguments: string } }[] };
        }[];
      };
      reasoning += choices[0]?.delta.reasoning ?? "";
      json += choices[0]?.delta.tool_calls?.[0]?.function.arguments ?? "";
    }
    expect(reasoning).toBe("I know [EMAIL] by heart.");
    expect(JSON.parse(json)).toEqual({ card: "[CREDIT_CARD]", to: "[EMAIL]" });
  });

  test("what cannot be looked through is refused where the output is", async () => {
    const guardrail = await create({ ...PII, on: ["output"], action: "redact" });
    const [path, body] = inputs("hello")[0]!;
    const { status, text } = await ask(path, { ...body, guardrail, logprobs: true });
    expect([status, (JSON.parse(text) as { error: { param: string } }).error.param]).toEqual([
      400,
      "logprobs",
    ]);
  });
});

test("a guardrail of the organization holds for every call, and only the operator takes it away", async () => {
  const operator = await addOperator(gateway);
  const guardrail = await create({ ...PII, action: "block" });
  const organization = `/v1/admin/organizations/${gateway.organizationId}`;
  const set = (body: object) => gateway.request("PATCH", organization, body, { key: operator });
  expect((await set({ guardrail })).status).toBe(200);
  const key = gateway.managementKey;
  for (const method of ["PATCH", "DELETE"]) {
    const body = method === "PATCH" ? { rules: [{ type: "injection" }] } : undefined;
    const refused = await gateway.request(method, `/v1/guardrails/${guardrail}`, body, { key });
    await expectError(refused, 409, "guardrail_in_use");
  }
  for (const [path, body] of inputs(EMAIL)) {
    for (const named of [undefined, null, await create({ type: "pattern", pattern: "zzz" })]) {
      expect((await ask(path, { ...body, guardrail: named })).status).toBe(400);
    }
  }
  const shown = await gateway.request("GET", organization, undefined, { key: operator });
  expect(await shown.json()).toMatchObject({ guardrail, key_guardrails: {} });
  expect((await set({ guardrail: null })).status).toBe(200);
  const [path, body] = inputs(EMAIL)[0]!;
  provider.says = "Hello.";
  expect((await ask(path, body)).status).toBe(200);
  await addSecretKey(gateway, {});
  const [row] = await gateway.sql<
    { id: string }[]
  >`SELECT id FROM api_keys ORDER BY id DESC LIMIT 1`;
  expect((await set({ key_guardrails: { [row!.id]: guardrail } })).status).toBe(200);
  expect((await ask(path, body)).status).toBe(200);
  await expectError(await set({ guardrail: "none" }), 404, "guardrail_not_found");
  await expectError(
    await set({ key_guardrails: { key_none: guardrail } }),
    404,
    "guardrail_not_found",
  );
  expect((await set({ key_guardrails: { [row!.id]: null } })).status).toBe(200);
});

test("a key's guardrail holds for that key alone", async () => {
  const operator = await addOperator(gateway);
  const guardrail = await create({ ...PII, action: "block" });
  const secret = await addSecretKey(gateway, {});
  const [row] = await gateway.sql<
    { id: string }[]
  >`SELECT id FROM api_keys ORDER BY id DESC LIMIT 1`;
  const path = `/v1/admin/organizations/${gateway.organizationId}`;
  const set = (value: string | null) =>
    gateway.request("PATCH", path, { key_guardrails: { [row!.id]: value } }, { key: operator });
  expect((await set(guardrail)).status).toBe(200);
  const [chat, body] = inputs(EMAIL)[0]!;
  expect((await ask(chat, body, secret)).status).toBe(400);
  expect((await ask(chat, body)).status).toBe(200);
  await set(null);
});

test("each request that triggers has one event, which quotes nothing", async () => {
  const hook = { url: "https://receiver.invalid/hook", events: ["guardrail.triggered"] };
  const key = gateway.managementKey;
  expect((await gateway.request("POST", "/v1/webhooks", hook, { key })).status).toBe(201);
  const guardrail = await create(
    { ...PII, action: "redact" },
    { type: "pattern", on: ["output"], pattern: "forbidden" },
  );
  provider.says = "This is forbidden.";
  const [path, body] = inputs(`${EMAIL} and ${CARD}`)[0]!;
  const response = await gateway.request("POST", path, { ...body, guardrail, stream: true });
  await response.text();
  const events = await until("the event is written", async () => {
    const rows = await gateway.sql<{ data: Record<string, unknown> }[]>`
      SELECT data FROM outbox WHERE type = 'guardrail.triggered'`;
    return rows.length > 0 ? rows : undefined;
  });
  expect(events).toHaveLength(1);
  const [{ data }] = events as unknown as [{ data: Record<string, unknown> }];
  expect(payloadFaults("guardrail.triggered", data)).toEqual([]);
  expect(data).toMatchObject({
    ...{ guardrail, rule: "pattern", rules: ["pii", "pattern"], action: "block" },
    ...{ direction: "output", request_id: response.headers.get("x-gateway-request-id") },
  });
});

test("an answer is kept for requests with the same guardrails alone, as the client got it", async () => {
  const redacting = await create({ ...PII, on: ["output"], action: "redact" });
  const blocking = await create({ ...PII, on: ["output"], action: "block" });
  provider.says = `Write to ${EMAIL}.`;
  const [path, body] = inputs(`cached ${crypto.randomUUID()}`)[0]!;
  const headers = { "x-gateway-cache": "on" };
  const send = async (fields: object) => {
    const response = await gateway.request("POST", path, { ...body, ...fields }, { headers });
    return `${response.headers.get("x-gateway-cache")} ${response.status} ${await response.text()}`;
  };
  expect(await send({})).toMatch(/^miss 200 .*lovelace/);
  expect(await send({ guardrail: redacting })).toMatch(/^miss 200 .*\[EMAIL\]/);
  expect(await send({ guardrail: redacting })).toMatch(/^hit 200 .*\[EMAIL\]/);
  expect(await send({ guardrail: blocking })).toMatch(/^\w+ 400 /);
  expect(await send({ guardrail: blocking })).toMatch(/^\w+ 400 /);
  expect(await send({})).toMatch(/^hit 200 .*lovelace/);
});

test("a background response is looked through like any other", async () => {
  const guardrail = await create({ ...PII, action: "redact" });
  provider.says = `Write to ${EMAIL}.`;
  const body = { model: "test/chat", input: `I am ${EMAIL}`, background: true, guardrail };
  const begun = await ask("/v1/responses", body);
  expect(begun.status).toBe(200);
  const { id } = JSON.parse(begun.text) as { id: string };
  const ended = await until("it has ended", async () => {
    const response = await gateway.request("GET", `/v1/responses/${id}`);
    const { status, text } = { status: response.status, text: await response.text() };
    return status === 200 && text.includes('"status":"completed"') ? text : undefined;
  });
  expect(ended).toContain("Write to [EMAIL].");
  expect(JSON.stringify(provider.calls.at(-1))).toContain("I am [EMAIL]");
});
