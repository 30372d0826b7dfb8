import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { readEnvelope } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { oddString, oddValue } from "../support/odd-values.ts";
import { readStream } from "../support/stream-reader.ts";

const RUNS = 400;
const TIMEOUT_MS = 30_000;
/** The sandbox answers in process, with tools and formats obeyed: hostile schemas reach it. */
const MODELS = ["sandbox/chat", "test/spare-0"];

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway({ startingCreditUsd: 1_000 });
});
afterAll(() => gateway.stop());

/** How often each status was answered. */
const statuses = new Map<number, number>();

/** Whatever was sent: an answer, or an error of the caller's with its envelope, never the gateway's fault. */
async function expectNoFault(body: string): Promise<void> {
  const response = await gateway.request("POST", "/v1/chat/completions", body);
  statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
  if (response.status === 200) {
    if (response.headers.get("content-type")!.startsWith("text/event-stream")) {
      expect((await readStream(response)).isDone).toBeTrue();
    } else expect(await response.json()).toMatchObject({ object: "chat.completion" });
    return;
  }
  expect(response.status).toBeLessThan(500);
  await readEnvelope(response);
}

const FIELDS = [
  "model",
  "messages",
  "stream",
  "temperature",
  "max_tokens",
  "max_completion_tokens",
  "top_p",
  "top_k",
  "frequency_penalty",
  "presence_penalty",
  "repetition_penalty",
  "min_p",
  "seed",
  "stop",
  "logit_bias",
  "n",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "response_format",
  "reasoning",
  "include_reasoning",
  "interleaved_thinking",
  "modalities",
  "image_config",
  "stream_options",
  "models",
  "provider",
  "plugins",
  "web_search_options",
  "cache_control",
  "preset",
  "guardrail",
  "trace",
  "session_id",
  "route_explain",
  "transforms",
  "route",
  "metadata",
  "user",
  "store",
  "debug",
  "functions",
  "extra",
  "__proto__",
];

/** Of what is refused in most of its forms there is little, so that much of what is sent is taken. */
const mostly = <Good, Odd>(good: fc.Arbitrary<Good>, odd: fc.Arbitrary<Odd>) =>
  fc.oneof({ arbitrary: good, weight: 30 }, { arbitrary: odd, weight: 1 });
const oddObject = fc.dictionary(oddString, oddValue, { maxKeys: 3 });

const part = fc.record({
  type: mostly(fc.constant("text"), fc.constantFrom("image_url", "file", "__proto__")),
  text: oddString,
});
const parts = fc.array(part, { minLength: 1, maxLength: 3 });
const roles = fc.constantFrom("system", "user", "assistant", "tool", "developer");

const message = fc.record(
  { role: roles, content: fc.oneof(oddString, parts), name: oddString, tool_call_id: oddString },
  { requiredKeys: ["role", "content", "tool_call_id"] },
);

/** What may be missing of it is missing of a few, whatever their role. */
const messageWithGaps = fc.record(
  { role: roles, content: fc.oneof(oddString, fc.constant(null), parts), tool_call_id: oddString },
  { requiredKeys: ["role"] },
);
const anyMessage = mostly(message, messageWithGaps);

/** Requests that are mostly valid, each optional field with a value of its own kind. */
const goodRequest = fc.record(
  {
    model: fc.constantFrom(...MODELS),
    messages: fc.array(anyMessage, { minLength: 1, maxLength: 3 }),
    stream: fc.boolean(),
    temperature: fc.double({ min: 0, max: 2, noNaN: true }),
    max_tokens: fc.integer({ min: 1, max: 500 }),
    n: fc.integer({ min: 1, max: 3 }),
    seed: fc.maxSafeInteger(),
    stop: fc.oneof(oddString, fc.array(oddString, { maxLength: 4 })),
    logit_bias: fc.dictionary(fc.nat().map(String), fc.integer({ min: -100, max: 100 })),
    tools: fc.array(
      fc.record({
        type: fc.constant("function"),
        function: fc.record({
          name: fc.stringMatching(/^[a-z_]{1,12}$/),
          parameters: mostly(oddObject, oddValue),
        }),
      }),
      { maxLength: 2 },
    ),
    tool_choice: fc.constantFrom("none", "auto", "required"),
    response_format: fc.oneof(
      fc.constant({ type: "json_object" }),
      mostly(oddObject, oddValue).map((schema) => ({
        type: "json_schema",
        json_schema: { name: "a", schema },
      })),
    ),
    stream_options: fc.record({ include_usage: fc.boolean() }),
    metadata: fc.dictionary(oddString, oddValue, { maxKeys: 3 }),
    user: oddString,
    route_explain: fc.boolean(),
    extra: oddValue,
  },
  { requiredKeys: ["model", "messages"] },
);

const hostile = { numRuns: RUNS, endOnFailure: true } as const;

test(
  "JSON of any shape is answered, or refused with an envelope and a status below 500",
  () =>
    fc.assert(
      fc.asyncProperty(oddValue, (value) => expectNoFault(JSON.stringify(value))),
      hostile,
    ),
  TIMEOUT_MS,
);

test(
  "so is an object of the endpoint's own fields with values of any shape",
  () =>
    fc.assert(
      fc.asyncProperty(
        fc.dictionary(fc.constantFrom(...FIELDS), oddValue, { maxKeys: 6 }),
        fc.boolean(),
        (fields, isValidBelow) =>
          expectNoFault(
            JSON.stringify(
              isValidBelow
                ? { model: MODELS[0], messages: [{ role: "user", content: "a" }], ...fields }
                : fields,
            ),
          ),
      ),
      hostile,
    ),
  TIMEOUT_MS,
);

test(
  "so is a valid request",
  () =>
    fc.assert(
      fc.asyncProperty(goodRequest, (body) => expectNoFault(JSON.stringify(body))),
      hostile,
    ),
  TIMEOUT_MS,
);

test(
  "so is a valid request with a few of its bytes changed, dropped or doubled",
  () =>
    fc.assert(
      fc.asyncProperty(
        goodRequest.map((body) => JSON.stringify(body)),
        fc.array(
          fc.record({
            at: fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
            remove: fc.nat(3),
            insert: fc.constantFrom(
              "",
              '"',
              "{",
              "}",
              "[",
              "]",
              ",",
              ":",
              "\\",
              "0",
              "e9",
              "null",
              "\u0000",
            ),
          }),
          { minLength: 1, maxLength: 3 },
        ),
        (text, edits) => {
          let edited = text;
          for (const { at, remove, insert } of edits) {
            const start = Math.floor(at * edited.length);
            edited = edited.slice(0, start) + insert + edited.slice(start + remove);
          }
          return expectNoFault(edited);
        },
      ),
      hostile,
    ),
  TIMEOUT_MS,
);

test("what was sent was partly good and partly bad, or nothing was proved", () => {
  expect(statuses.get(200)).toBeGreaterThan(RUNS / 4);
  expect(statuses.get(400)).toBeGreaterThan(RUNS);
});

test("the books are closed afterwards", () => expectBooksClosed(gateway));
