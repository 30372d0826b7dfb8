import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { CHAT_FIELDS, CHAT_MODELS, goodChatRequest } from "../support/odd-chat-requests.ts";
import { oddValue } from "../support/odd-values.ts";

const RUNS = 100;
const TIMEOUT_MS = 120_000;
/** White space that makes a thread read the body it stands behind. */
const PADDING = " ".repeat(262_145);

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway({
    startingCreditUsd: 100_000,
    primaryType: "mistral",
    models: { two: ["primary/two", "secondary/two"] },
  });
});
afterAll(() => gateway.stop());

const statuses = new Map<number, number>();

const COMPARED_HEADERS = ["x-gateway-dropped-parameters", "x-gateway-model", "x-gateway-cost"];

/** What a client and the provider see of a request, without what differs between any two requests. */
async function outcomeOf(body: string) {
  const before = gateway.upstream.served.length;
  const response = await gateway.request("POST", "/v1/chat/completions", body);
  const text = await response.text();
  return {
    status: response.status,
    headers: COMPARED_HEADERS.map((name) => response.headers.get(name)),
    text: text
      .replaceAll(/(?:chatcmpl-|req_)[0-9a-f]{32}/g, "ID")
      .replaceAll(/"created":\d+/g, "")
      .replaceAll(/call_[0-9a-f_]+/g, "CALL"),
    sent: gateway.upstream.served.slice(before).map(({ requestBody }) => requestBody),
  };
}

async function expectSame(body: string): Promise<void> {
  const short = await outcomeOf(body);
  const long = await outcomeOf(body + PADDING);
  statuses.set(short.status, (statuses.get(short.status) ?? 0) + 1);
  expect(long).toEqual(short);
}

const options = { numRuns: RUNS, endOnFailure: true } as const;
const models = fc.constantFrom(...CHAT_MODELS, "test/two", "test/none");

test(
  "a body that a thread reads has the same outcome as any other: valid requests",
  () =>
    fc.assert(
      fc.asyncProperty(goodChatRequest, models, (body, model) =>
        expectSame(JSON.stringify({ ...body, model })),
      ),
      options,
    ),
  TIMEOUT_MS,
);

test(
  "so have objects of the endpoint's own fields with values of any shape",
  () =>
    fc.assert(
      fc.asyncProperty(
        fc.dictionary(fc.constantFrom(...CHAT_FIELDS), oddValue, { maxKeys: 3 }),
        models,
        (fields, model) =>
          expectSame(
            JSON.stringify({ model, messages: [{ role: "user", content: "a" }], ...fields }),
          ),
      ),
      options,
    ),
  TIMEOUT_MS,
);

test(
  "so have requests with bytes that are missing or too many",
  () =>
    fc.assert(
      fc.asyncProperty(
        goodChatRequest,
        fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
        fc.constantFrom("", '"', "{", "}", ",", "0", "\\", "\\ud800", "\\u0000", "null"),
        (body, where, inserted) => {
          const text = JSON.stringify(body);
          const at = Math.floor(where * text.length);
          return expectSame(text.slice(0, at) + inserted + text.slice(at + 1));
        },
      ),
      options,
    ),
  TIMEOUT_MS,
);

test.each([
  ["many unknown fields", { ...Object.fromEntries(names(3_000).map((name) => [name, 1])) }],
  ["unknown fields that must be there", { a: 1, b: 2, provider: { require_parameters: true } }],
  [
    "hints that the first provider lacks",
    { top_k: 3, min_p: 0.1, user: "u", logit_bias: { 1: 2 } },
  ],
  ["a field that changes the answer", { logprobs: true, top_logprobs: 2 }],
  ["effort", { reasoning: { effort: "high", max_tokens: 5, exclude: true } }],
  ["stream options", { stream: true, stream_options: { include_usage: true, other: 1 } }],
  ["a long cache", { messages: [{ role: "user", content: "a", cache_control: { ttl: "1h" } }] }],
  ["tools of a provider", { tools: [{ type: "web_search" }] }],
  ["stored metadata", { store: true, metadata: { a: "b" } }],
  ["a synonym", { n_predict: 5 }],
  ["a name in other letters", { Model: "x" }],
  ["media", { messages: [{ role: "user", content: [{ type: "image_url", image_url: {} }] }] }],
  [
    "a tool choice that names no tool",
    { tool_choice: { type: "function", function: { name: "x" } } },
  ],
  ["the route told", { route_explain: true, models: ["test/two", "sandbox/chat"] }],
  ["more metadata than is kept", { metadata: { a: "x".repeat(20_000) } }],
  ["no messages", { messages: [] }],
  ["a wrong message", { messages: [{ role: "user", content: "a" }, { role: "nobody" }] }],
])("so has a request with %s", async (_, fields) => {
  for (const model of [...CHAT_MODELS, "test/two"]) {
    const messages = [{ role: "user", content: "hello" }];
    await expectSame(JSON.stringify({ model, messages, ...fields }));
  }
});

test("so have calls under an idempotency key, by which bodies are told apart", async () => {
  const body = (key: string) =>
    JSON.stringify({
      model: "sandbox/chat",
      messages: [{ role: "user", content: "hello" }],
      store: true,
      metadata: { a: "b", idempotency_key: key },
    });
  const long = body("long") + PADDING;
  const first = await outcomeOf(long);
  expect(first).toEqual(await outcomeOf(body("short")));
  expect(await outcomeOf(long)).toEqual(first);
  expect((await outcomeOf(`${long} `)).status).toBe(409);
  expect((await outcomeOf(body("long"))).status).toBe(409);
});

function names(count: number): string[] {
  return Array.from({ length: count }, (_, n) => `field_${n}`);
}

test("what was sent was partly good and partly bad, or nothing was proved", () => {
  expect(statuses.get(200)).toBeGreaterThan(RUNS / 4);
  expect(statuses.get(400)).toBeGreaterThan(RUNS / 4);
});

test("the books are closed afterwards", () => expectBooksClosed(gateway));
