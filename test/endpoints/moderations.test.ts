import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOf, billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";

let answer: (body: { input: unknown[] }) => Response;
let asked: Record<string, unknown>[] = [];
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const body = (await request.json()) as Record<string, unknown>;
    asked.push(body);
    return answer(body as { input: unknown[] });
  },
});

let gateway: TestGateway;
let openai: OpenAI;
/** Of each test, so that an endpoint's health decides nothing in the next. */
let at = 0;
beforeAll(async () => {
  gateway = await startTestGateway({
    configuration: {
      providers: [
        { id: "openai", type: "openai", base_url: `${server.url}v1`, api_key: "k" },
        { id: "mistral", type: "mistral", base_url: `${server.url}v1`, api_key: "k" },
      ],
      models: Array.from({ length: 16 }, (_, number) => ({
        ...{ id: `test/m-${number}`, category: "moderation", context_length: 1_000 },
        input_cost_per_token: 1e-6,
        endpoints: [{ provider: "mistral", model: `m-${number}` }],
      })),
    },
  });
  openai = new OpenAI({
    ...{ apiKey: gateway.secretKey, baseURL: `${gateway.baseUrl}/v1`, maxRetries: 0 },
  });
});
afterAll(async () => {
  await gateway.stop();
  await server.stop(true);
});
beforeEach(() => {
  at++;
  asked = [];
});

const post = (body: Record<string, unknown>, key?: string) =>
  gateway.request("POST", "/v1/moderations", body, key === undefined ? {} : { key });

const clean = {
  flagged: false,
  categories: { violence: false },
  category_scores: { violence: 0.01 },
};
const harmful = {
  flagged: true,
  categories: { violence: true },
  category_scores: { violence: 0.9 },
};

describe("the official SDK", () => {
  test("gets a result for each text of OpenAI's model, which is the default and free", async () => {
    const types = { category_applied_input_types: { violence: ["text"] } };
    const results = [clean, { ...harmful, ...types }];
    answer = () => Response.json({ id: "modr-1", model: "omni-moderation-2024-09-26", results });
    const input = ["peace", "war"];
    const { data, response } = await openai.moderations.create({ input }).withResponse();
    expect(data.model).toBe("openai/omni-moderation-latest");
    expect(data.results).toEqual(results as unknown as OpenAI.Moderation[]);
    expect(data.id).toStartWith("modr-req_");
    expect(asked).toEqual([{ model: "omni-moderation-latest", input }]);
    expect(await billOfResponse(gateway, response)).toMatchObject({
      ...{ chargeNano: 0n, model: "openai/omni-moderation-latest", provider: "openai" },
    });
  });

  test("gets one result for the parts of one input", async () => {
    answer = () => Response.json({ id: "x", model: "m", results: [harmful] });
    const input: OpenAI.ModerationMultiModalInput[] = [
      { type: "text", text: "look" },
      { type: "image_url", image_url: { url: "https://example.com/a.png" } },
    ];
    const moderation = await openai.moderations.create({ model: "omni-moderation-latest", input });
    expect(moderation.results.map(({ flagged }) => flagged)).toEqual([true]);
    expect(asked[0]!.input).toEqual(input);
  });

  test("gets the sandbox's results, which name what a text names", async () => {
    const { results } = await openai.moderations.create({
      ...{ model: "sandbox/moderation", input: ["a text on self-harm", "a text on tulips"] },
    });
    expect(results.map(({ flagged }) => flagged)).toEqual([true, false]);
    expect(results[0]!.categories).toMatchObject({ "self-harm": true, violence: false });
  });
});

test("a text alone is a list of one, and a provider's tokens are charged", async () => {
  answer = () => Response.json({ results: [clean], usage: { prompt_tokens: 5, total_tokens: 5 } });
  const response = await post({ model: `test/m-${at}`, input: "peace", user: "ada", depth: 1 });
  expect(await response.clone().json()).toMatchObject({
    ...{ model: `test/m-${at}`, results: [clean] },
    usage: { prompt_tokens: 5, total_tokens: 5, cost: 0.0000052 },
  });
  expect(asked).toEqual([{ model: `m-${at}`, input: ["peace"], depth: 1 }]);
  expect(await billOfResponse(gateway, response)).toMatchObject({
    chargeNano: 5_200n,
    estimated: false,
  });
});

test("Mistral's results, which do not say it, are flagged where a category is", async () => {
  const result = (law: boolean) => ({
    categories: { law, pii: false },
    category_scores: { law: 0.4 },
  });
  answer = () => Response.json({ results: [result(true), result(false)] });
  const response = await post({ model: `test/m-${at}`, input: ["one", "two"] });
  const { results } = (await response.clone().json()) as { results: { flagged: boolean }[] };
  expect(results.map(({ flagged }) => flagged)).toEqual([true, false]);
  expect((await billOfResponse(gateway, response)).estimated).toBe(true);
});

test.each([
  ["fewer results than texts", { results: [clean] }],
  ["a result of no decision", { results: [clean, { categories: {} }] }],
  ["no results", {}],
])("%s is no answer: 502, and nothing is charged", async (_, broken) => {
  answer = () => Response.json(broken);
  const response = await post({ model: `test/m-${at}`, input: ["one", "two"] });
  await expectError(response, 502, "provider_error");
  const id = response.headers.get("x-gateway-request-id")!;
  expect(await billOf(gateway, id)).toBeUndefined();
});

test.each([[{ input: [] }], [{ input: 7 }], [{ input: [{ type: "sound" }] }], [{}]])(
  "a body of %j is 400",
  async (body) => {
    await expectError(await post({ model: "sandbox/moderation", ...body }), 400, "invalid_body");
  },
);

test("keys without the scope and models of other kinds are refused", async () => {
  const body = { model: "sandbox/moderation", input: "hi" };
  const key = await addSecretKey(gateway, { scopes: ["embeddings"] });
  await expectError(await post(body, key), 403, "missing_scope");
  await expectError(await post({ ...body, model: "sandbox/chat" }), 400, "unsupported_model");
  await expectError(await post({ ...body, preset: "none" }), 404, "preset_not_found");
});

test("nothing is held any more, and the books are whole", () => expectBooksClosed(gateway));
