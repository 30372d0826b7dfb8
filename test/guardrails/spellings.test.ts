import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { encode } from "gpt-tokenizer/encoding/cl100k_base";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import {
  readEvents,
  type SayingProvider,
  startSayingProvider,
} from "../support/saying-provider.ts";
import { SPELLINGS } from "../support/spellings.ts";

const EMAIL = "ada.lovelace@example.com";
const PII = { type: "pii", on: ["input", "output"] };

let gateway: TestGateway;
let provider: SayingProvider;
let names = 0;

beforeAll(async () => {
  provider = startSayingProvider();
  const model = (name: string, terms: object) => ({
    ...{ id: `test/${name}`, input_cost_per_token: 1e-9 },
    ...{ endpoints: [{ provider: "house", model: name }], ...terms },
  });
  const chat = { category: "chat", context_length: 1_000_000, max_output_tokens: 4_096 };
  const embedding = { category: "embedding", context_length: 8_192 };
  gateway = await startTestGateway({
    configuration: {
      providers: [
        { id: "house", type: "openai-compatible", base_url: provider.baseUrl, api_key: "k" },
      ],
      models: [
        model("chat", { ...chat, output_cost_per_token: 1e-6, capabilities: ["streaming"] }),
        model("embed", embedding),
        model("text-embedding-3-small", embedding),
      ],
    },
  });
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
  await provider.stop();
});

async function create(rule: object): Promise<string> {
  const body = { name: `guardrail ${names++}`, rules: [rule] };
  const key = gateway.managementKey;
  const response = await gateway.request("POST", "/v1/guardrails", body, { key });
  return ((await response.json()) as { id: string }).id;
}

async function ask(path: string, body: object) {
  const response = await gateway.request("POST", path, body, { key: gateway.secretKey });
  return { status: response.status, text: await response.text() };
}

const inputs = (content: string): [path: string, body: Record<string, unknown>][] => [
  ["/v1/chat/completions", { model: "test/chat", messages: [{ role: "user", content }] }],
  ["/v1/messages", { model: "test/chat", max_tokens: 50, messages: [{ role: "user", content }] }],
  ["/v1/responses", { model: "test/chat", input: content }],
];

describe("tokens in place of texts", () => {
  const embed = async (input: unknown, model = "test/text-embedding-3-small", action = "block") => {
    const guardrail = await create({ ...PII, on: ["input"], action });
    return ask("/v1/embeddings", { model, input, guardrail });
  };

  test("are looked through, and the provider gets the texts that were", async () => {
    const calls = provider.calls.length;
    for (const input of [encode(`From ${EMAIL}`), [encode("plain"), encode(`From ${EMAIL}`)]]) {
      const { status, text } = await embed(input);
      expect([status, text.includes("content_policy_violation")]).toEqual([400, true]);
    }
    expect(provider.calls).toHaveLength(calls);
    const both = [encode("plain"), encode(`From ${EMAIL}`)];
    expect((await embed(both, undefined, "redact")).status).toBe(200);
    expect(provider.calls.at(-1)!.input).toEqual(["plain", "From [EMAIL]"]);
  });

  test.each<[string, unknown, string | undefined]>([
    ["of a model whose encoding is not known", [1, 2, 3], "test/embed"],
    ["of no encoding", [4_000_000_000], undefined],
    ["of more than the model takes", Array(8_192).fill(1), undefined],
  ])("%s are 400, and go on where no guardrail holds", async (_, input, model) => {
    const { status, text } = await embed(input, model);
    const { error } = JSON.parse(text) as { error: { code: string; param: string } };
    expect([status, error.code, error.param]).toEqual([400, "unsupported_parameter", "input"]);
    const free = await ask("/v1/embeddings", { model: "test/embed", input: [1, 2, 3] });
    expect(free.status).toBe(200);
  });
});

/** But for one whose text is longer than an answer may be. */
const SHORT = SPELLINGS.filter(([, spell]) => spell("ab").length < 100);

test.each(SHORT)("texts in %s are found in requests, answers and streams", async (_, spell) => {
  const secret = spell(EMAIL);
  const blocking = await create({ ...PII, action: "block" });
  const redacting = await create({ ...PII, on: ["output"], action: "redact" });
  provider.says = `Write to ${secret} , please.`;
  provider.size = 3;
  for (const [path, body] of inputs(`From ${secret} .`)) {
    const calls = provider.calls.length;
    const { status, text } = await ask(path, { ...body, guardrail: blocking });
    expect([status, text.includes("was blocked by the guardrail")]).toEqual([400, true]);
    expect(provider.calls).toHaveLength(calls);
    const whole = await ask(path, { ...body, guardrail: redacting });
    expect(whole.text).toContain("Write to [EMAIL] , please.");
    const streamed = await ask(path, { ...body, guardrail: redacting, stream: true });
    expect(readEvents(path, streamed.text)).toEqual({
      ...{ said: "Write to [EMAIL] , please.", failed: false },
    });
  }
  const body = { model: "test/embed", input: [`From ${secret} .`], guardrail: blocking };
  expect((await ask("/v1/embeddings", body)).status).toBe(400);
  const others: [string, object][] = [
    ["/v1/moderations", { model: "sandbox/moderation", input: secret }],
    ["/v1/rerank", { model: "sandbox/rerank", query: "who", documents: ["one", secret] }],
    ["/v1/images/generations", { model: "sandbox/image", prompt: secret }],
    ["/v1/audio/speech", { model: "sandbox/tts", voice: "alloy", input: secret }],
  ];
  for (const [path, fields] of others) {
    const { text } = await ask(path, { ...fields, guardrail: blocking });
    expect([path, text.includes("was blocked by the guardrail")]).toEqual([path, true]);
  }
});
