import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOf, billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";

/** What providers answer to embeddings, and what becomes of it: forms, missing usage, fallbacks. */

type Answer = (request: Record<string, unknown>) => Response;

/** By the first part of the path. */
let answers: Record<string, Answer> = {};
let asked: { provider: string; body: Record<string, unknown> }[] = [];
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const provider = new URL(request.url).pathname.split("/")[1]!;
    const body = (await request.json()) as Record<string, unknown>;
    asked.push({ provider, body });
    return answers[provider]!(body);
  },
});

let gateway: TestGateway;
let slug = 0;
beforeAll(async () => {
  const model = (name: string) => ({
    id: `test/${name}`,
    category: "embedding",
    context_length: 512,
    input_cost_per_token: 1e-7,
    endpoints: [
      { provider: "first", model: name },
      { provider: "second", model: name, input_cost_per_token: 2e-7 },
    ],
  });
  gateway = await startTestGateway({
    configuration: {
      providers: [
        // Of OpenAI itself base64 is asked for, of others not.
        { id: "first", type: "openai", base_url: address("first"), api_key: "k" },
        { id: "second", type: "openai-compatible", base_url: address("second"), api_key: "k" },
      ],
      models: Array.from({ length: 32 }, (_, at) => model(`m-${at}`)),
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await server.stop(true);
});
// An endpoint's health in one test decides nothing in the next.
beforeEach(() => {
  slug++;
  asked = [];
});

const address = (provider: string) => `http://127.0.0.1:${server.port}/${provider}/v1`;

const post = (body: Record<string, unknown>) =>
  gateway.request("POST", "/v1/embeddings", { model: `test/m-${slug}`, ...body });

const base64 = (...numbers: number[]) =>
  Buffer.from(Float32Array.from(numbers).buffer).toString("base64");

const list = (embeddings: readonly unknown[], usage?: object) =>
  Response.json({
    object: "list",
    data: embeddings.map((embedding, index) => ({ object: "embedding", index, embedding })),
    model: "theirs",
    usage,
  });

const TEXTS = ["a first text", "a second text"];

const usageOf = (tokens: number) => ({ prompt_tokens: tokens, total_tokens: tokens });

interface EmbeddingsBody {
  data: { index: number; embedding: number[] | string }[];
  model: string;
  usage: { prompt_tokens: number; total_tokens: number; cost: number };
}

test("a provider that answers in base64 is asked for it, and the client gets the form it asked for", async () => {
  const vectors = [
    [1, -0.5, 0.25],
    [0, 3, -4],
  ];
  answers = { first: () => list([base64(...vectors[0]!), base64(...vectors[1]!)], usageOf(6)) };
  const floats = await post({ input: TEXTS });
  const read = (await floats.json()) as EmbeddingsBody;
  expect(read.data.map(({ embedding }) => embedding)).toEqual(vectors);
  expect(read).toMatchObject({ model: `test/m-${slug}`, usage: { ...usageOf(6), cost: 6.24e-7 } });
  const encoded = await post({ input: TEXTS, encoding_format: "base64" });
  const packed = (await encoded.json()) as EmbeddingsBody;
  expect(packed.data.map(({ embedding }) => embedding)).toEqual([
    base64(...vectors[0]!),
    base64(...vectors[1]!),
  ]);
  expect(asked.map(({ body }) => body.encoding_format)).toEqual(["base64", "base64"]);
  // 100 nano-USD a token, and 4 % of it.
  for (const response of [floats, encoded]) {
    expect(await billOfResponse(gateway, response)).toMatchObject({
      chargeNano: 624n,
      estimated: false,
    });
  }
});

test.each([
  ["floats", () => list([[0.5, 1]], usageOf(3))],
  ["floats in base64", () => list([base64(0.5, 1)], usageOf(3))],
])("%s are the vectors that the client gets", async (_, answer) => {
  answers = { first: answer };
  const read = (await (await post({ input: "a" })).json()) as EmbeddingsBody;
  expect(read.data[0]!.embedding).toEqual([0.5, 1]);
});

test("vectors come in the order of their inputs", async () => {
  const data = [2, 0, 1].map((index) => ({ object: "embedding", index, embedding: [index] }));
  answers = { first: () => Response.json({ object: "list", data, usage: usageOf(3) }) };
  const read = (await (await post({ input: ["a", "b", "c"] })).json()) as EmbeddingsBody;
  expect(read.data.map(({ index, embedding }) => [index, embedding])).toEqual([
    [0, [0]],
    [1, [1]],
    [2, [2]],
  ]);
});

test.each([
  ["none", undefined],
  ["zero tokens", usageOf(0)],
  ["a fraction of a token", usageOf(1.5)],
  ["fewer than no tokens", usageOf(-7)],
])("usage of %s is estimated from the texts, and billed as such", async (_, usage) => {
  answers = { first: () => list([[1]], usage) };
  const response = await post({ input: "a text of some words to be counted" });
  const read = (await response.json()) as EmbeddingsBody;
  const tokens = read.usage.prompt_tokens;
  expect(tokens).toBeWithin(1, 35);
  expect(await billOfResponse(gateway, response)).toMatchObject({
    chargeNano: BigInt(tokens) * 104n,
    promptTokens: tokens,
    estimated: true,
  });
});

const tooFew = () => list([[1]], usageOf(3));
test.each([
  ["a status of 500", () => new Response("broken", { status: 500 })],
  ["a limit of rate", () => new Response("later", { status: 429 })],
  ["no JSON", () => new Response("{")],
  ["an error in a status of success", () => Response.json({ error: { message: "sorry" } })],
  ["too few vectors", tooFew],
  ["a vector that is cut short", () => list([base64(1).slice(0, 4), base64(1)], usageOf(3))],
  ["a vector of no numbers", () => list([base64(Number.NaN), base64(1)], usageOf(3))],
  ["a vector of words", () => list([["one"], [1]], usageOf(3))],
  ["an empty vector", () => list([[], [1]], usageOf(3))],
] as const)(
  "after %s the next provider serves the call, which alone is billed",
  async (_, first) => {
    answers = { first, second: () => list([[1], [2]], usageOf(5)) };
    const response = await post({ input: TEXTS });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-gateway-provider")).toBe("second");
    const read = (await response.json()) as EmbeddingsBody;
    expect(read.data.map(({ embedding }) => embedding)).toEqual([[1], [2]]);
    expect(new Set(asked.map(({ provider }) => provider))).toEqual(new Set(["first", "second"]));
    expect(asked.at(-1)!.body).not.toHaveProperty("encoding_format");
    // 200 nano-USD a token at the second, and 4 % of it.
    expect(await billOfResponse(gateway, response)).toMatchObject({
      chargeNano: 1_040n,
      provider: "second",
      promptTokens: 5,
    });
  },
);

test("what every provider fails at is 502, and nothing is billed", async () => {
  answers = { first: tooFew, second: () => new Response("broken", { status: 500 }) };
  const response = await post({ input: TEXTS });
  expect(response.status).toBe(502);
  expect(await response.json()).toMatchObject({ error: { code: "provider_error" } });
  expect(await billOf(gateway, response.headers.get("x-gateway-request-id")!)).toBeUndefined();
});

test("what a provider refuses is not asked of the next", async () => {
  const error = { message: "input: too odd", param: "input" };
  answers = { first: () => Response.json({ error }, { status: 400 }) };
  const response = await post({ input: "a" });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ error: { message: "input: too odd" } });
  expect(asked).toHaveLength(1);
});

test("no provider can bill more tokens than the texts can have", async () => {
  answers = { first: () => list([[1]], usageOf(1_000)) };
  const response = await post({ input: "four" });
  // The hold: four tokens at the dearer provider, and 4 % of it.
  expect((await billOfResponse(gateway, response)).chargeNano).toBe(832n);
});

test("a long answer is read like any other", async () => {
  const inputs = Array.from({ length: 512 }, (_, at) => `text ${at}`);
  const vector = (at: number) => Array.from({ length: 512 }, (_, place) => at + place / 512);
  const vectors = inputs.map((_, at) => vector(at));
  answers = {
    first: () =>
      list(
        vectors.map((one) => base64(...one)),
        usageOf(1_000),
      ),
  };
  const packed = (await (await post({ input: inputs })).json()) as EmbeddingsBody;
  expect(packed.data.map(({ embedding }) => embedding)).toEqual(vectors);
  answers = { first: () => list(vectors, usageOf(1_000)) };
  const floats = (await (await post({ input: inputs })).json()) as EmbeddingsBody;
  expect(floats.data).toEqual(packed.data);
});

test("nothing stays held, and the books agree", () => expectBooksClosed(gateway));

describe("models of the catalogue", () => {
  let builtIn: TestGateway;
  beforeAll(async () => {
    builtIn = await startTestGateway({
      environment: {
        ...{ OPENAI_API_KEY: "k", OPENAI_BASE_URL: address("first") },
        ...{ COHERE_API_KEY: "k", COHERE_BASE_URL: address("second") },
      },
    });
  });
  afterAll(() => builtIn.stop());

  const embed = (model: string, input: unknown) =>
    builtIn.request("POST", "/v1/embeddings", { model, input });

  test("an input of more than 8,191 tokens is 413 for OpenAI's, before it is called", async () => {
    answers = { first: () => list([[1, 2]], usageOf(8_191)) };
    const ids = (length: number) => Array.from({ length }, () => 5);
    for (const name of ["3-small", "3-large", "ada-002"]) {
      const model = `openai/text-embedding-${name}`;
      expect((await embed(model, ids(8_191))).status).toBe(200);
      asked = [];
      for (const input of [ids(8_192), [[5], ids(8_192)], "a ".repeat(8_192)]) {
        const refused = await embed(model, input);
        expect((await expectError(refused, 413, "input_too_long")).error.param).toBe("input");
      }
      expect(asked).toEqual([]);
    }
  });

  test("Cohere's third version takes 512 tokens, and has 1,024 dimensions", async () => {
    const vector = Array.from({ length: 1_024 }, (_, at) => at);
    const meta = { billed_units: { input_tokens: 3 } };
    answers = { second: () => Response.json({ embeddings: { float: [vector] }, meta }) };
    for (const name of ["english", "multilingual"]) {
      const model = `cohere/embed-${name}-v3.0`;
      asked = [];
      const answer = (await (await embed(model, "three short words")).json()) as EmbeddingsBody;
      expect(answer.data[0]!.embedding).toHaveLength(1_024);
      // 100 nano-USD a token, and 4 % of it.
      expect(answer).toMatchObject({ model, usage: { prompt_tokens: 3, cost: 3.12e-7 } });
      expect(asked[0]!.body).toMatchObject({ model: `embed-${name}-v3.0`, truncate: "NONE" });
      await expectError(await embed(model, "word ".repeat(513)), 413, "input_too_long");
      expect(asked).toHaveLength(1);
    }
  });
});
