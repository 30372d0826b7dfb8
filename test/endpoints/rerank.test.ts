import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOf, billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";

let answer: (body: Record<string, unknown>) => Response;
let asked: { path: string; body: Record<string, unknown> }[] = [];
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const body = (await request.json()) as Record<string, unknown>;
    asked.push({ path: new URL(request.url).pathname, body });
    return answer(body);
  },
});

let gateway: TestGateway;
/** Of each test, so that an endpoint's health decides nothing in the next. */
let at = 0;
beforeAll(async () => {
  const numbers = Array.from({ length: 24 }, (_, number) => number);
  const model = (kind: string, provider: string, price: object) =>
    numbers.map((number) => ({
      ...{ id: `test/${kind}-${number}`, category: "rerank", context_length: 512, ...price },
      endpoints: [{ provider, model: `${kind}-${number}` }],
    }));
  gateway = await startTestGateway({
    configuration: {
      providers: [
        { id: "jina", type: "openai-compatible", base_url: `${server.url}jina/v1`, api_key: "k" },
        { id: "own", type: "openai-compatible", base_url: server.url.origin },
        { id: "cohere", type: "cohere", base_url: `${server.url}cohere/v2`, api_key: "k" },
      ],
      models: [
        {
          ...{ id: "test/own", category: "rerank", context_length: 512, input_cost_per_token: 0 },
          endpoints: [{ provider: "own", model: "own" }],
        },
        ...model("jina", "jina", { input_cost_per_token: 1e-6 }),
        ...model("cohere", "cohere", { cost_per_search_unit: 0.002 }),
      ],
    },
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
  gateway.request("POST", "/v1/rerank", body, key === undefined ? {} : { key });

interface RerankBody {
  id: string;
  model: string;
  results: { index: number; relevance_score: number; document?: object }[];
  usage: Record<string, number>;
  meta: { billed_units: Record<string, number> };
}

const read = async (response: Response): Promise<RerankBody> => {
  expect(response.status).toBe(200);
  return (await response.json()) as RerankBody;
};

const results = (...scores: readonly number[]) =>
  scores.map((score, index) => ({ index, relevance_score: score }));

const QUERY = { query: "capital of France", documents: ["Bread", "Paris", "Lyon"] };

describe("on Jina's wire", () => {
  test("all documents are sent and ranked, those that were asked for are shown, and tokens are charged", async () => {
    answer = () => Response.json({ results: results(0.1, 0.9, 0.5), usage: { total_tokens: 40 } });
    const documents = ["Bread", { text: "Paris", page: 3 }, "Lyon"];
    const body = { model: `test/jina-${at}`, query: QUERY.query, documents, user: "ada", depth: 2 };
    const response = await post({ ...body, top_n: 2, return_documents: true });
    const ranking = await read(response.clone() as Response);
    expect(ranking.id).toStartWith("rerank-req_");
    expect(ranking).toMatchObject({
      model: `test/jina-${at}`,
      results: [
        { index: 1, relevance_score: 0.9, document: { text: "Paris", page: 3 } },
        { index: 2, relevance_score: 0.5, document: { text: "Lyon" } },
      ],
      usage: { prompt_tokens: 40, total_tokens: 40, cost: 0.0000416 },
      meta: { billed_units: { input_tokens: 40 } },
    });
    expect(ranking.results).toHaveLength(2);
    expect(asked).toEqual([
      {
        path: "/jina/v1/rerank",
        body: {
          ...{ model: `jina-${at}`, query: QUERY.query, return_documents: false, depth: 2 },
          documents: ["Bread", "Paris", "Lyon"],
        },
      },
    ]);
    const bill = await billOfResponse(gateway, response);
    expect(bill).toMatchObject({ chargeNano: 41_600n, promptTokens: 40, estimated: false });
  });

  test("Voyage's list is read too, in any order, and without documents where none are asked for", async () => {
    const data = results(0.2, 0.7, 0.4).toReversed();
    answer = () => Response.json({ object: "list", data, usage: { total_tokens: 9 } });
    const ranking = await read(await post({ model: `test/jina-${at}`, ...QUERY }));
    expect(ranking.results.map(({ index }) => index)).toEqual([1, 2, 0]);
    expect(ranking.results[0]).not.toHaveProperty("document");
  });

  test("without usage of the provider's, tokens are counted here, and the bill says so", async () => {
    answer = () => Response.json({ results: results(0.2, 0.7, 0.4) });
    const response = await post({ model: `test/jina-${at}`, ...QUERY });
    expect(response.status).toBe(200);
    const bill = await billOfResponse(gateway, response);
    expect(bill.estimated).toBe(true);
    expect(bill.promptTokens).toBeWithin(12, 60);
  });

  test.each([
    ["too few results", { results: results(0.1, 0.2) }],
    [
      "two results of one document",
      { results: [...results(0.1, 0.2), { index: 0, relevance_score: 1 }] },
    ],
    [
      "a result of no document",
      { results: [...results(0.1, 0.2), { index: 3, relevance_score: 1 }] },
    ],
    ["a result without a score", { results: [...results(0.1, 0.2), { index: 2 }] }],
    ["a list of none", { results: {} }],
    ["a list of no results", [1]],
    ["no object", 7],
  ])("%s is no answer: 502, and nothing is charged", async (_, broken) => {
    answer = () => Response.json(broken);
    const response = await post({ model: `test/jina-${at}`, ...QUERY });
    await expectError(response, 502, "provider_error");
    const id = response.headers.get("x-gateway-request-id")!;
    expect(await billOf(gateway, id)).toBeUndefined();
  });

  test("Text Embeddings Inference is asked in its own words, once it has said so", async () => {
    answer = ({ texts }) => {
      if (texts === undefined) return new Response("missing field `texts`", { status: 422 });
      return Response.json([
        { index: 1, score: 0.9 },
        { index: 0, score: 0.1 },
      ]);
    };
    const ask = async (documents: string[]) =>
      read(await post({ model: "test/own", query: "q", documents }));
    expect((await ask(["a", "b"])).results.map(({ index }) => index)).toEqual([1, 0]);
    expect((await ask(["c", "d"])).results).toHaveLength(2);
    expect(asked.map(({ path, body }) => [path, body.texts ?? body.documents])).toEqual([
      ["/rerank", ["a", "b"]],
      ["/rerank", ["a", "b"]],
      ["/rerank", ["c", "d"]],
    ]);
  });

  test("what the provider refuses is 400 with its message", async () => {
    answer = () => Response.json({ error: { message: "depth is unknown" } }, { status: 422 });
    const refused = await post({ model: `test/jina-${at}`, ...QUERY, depth: 9 });
    const { error } = await expectError(refused, 400, "provider_rejected");
    expect(error.message).toContain("depth is unknown");
  });
});

describe("on Cohere's wire", () => {
  const meta = (units: number) => ({ billed_units: { search_units: units } });

  test("search units are charged as they are reported", async () => {
    answer = () => Response.json({ id: "x", results: results(0.3, 0.9, 0.2), meta: meta(1) });
    const body = { model: `test/cohere-${at}`, ...QUERY, max_tokens_per_doc: 512, top_n: 1 };
    const response = await post(body);
    expect(await read(response.clone() as Response)).toMatchObject({
      results: [{ index: 1 }],
      usage: { prompt_tokens: 0, search_units: 1, cost: 0.00208 },
      meta: { billed_units: { search_units: 1 } },
    });
    expect(asked[0]).toEqual({
      path: "/cohere/v2/rerank",
      body: { model: `cohere-${at}`, ...QUERY, max_tokens_per_doc: 512 },
    });
    const bill = await billOfResponse(gateway, response);
    expect(bill).toMatchObject({ chargeNano: 2_080_000n, quantities: { search_units: 1 } });
  });

  test("the hold covers each piece of long documents, and a charge is never above it", async () => {
    const documents = Array.from({ length: 150 }, () => "x".repeat(950));
    answer = () => Response.json({ results: results(...documents.map(() => 0.5)), meta: meta(99) });
    const response = await post({ model: `test/cohere-${at}`, query: "q", documents });
    // Of 950 bytes two pieces at most: 300, which are three units.
    expect(await billOfResponse(gateway, response)).toMatchObject({ chargeNano: 6_240_000n });
  });

  test("units that are not reported are counted here", async () => {
    answer = () => Response.json({ results: results(...Array(101).fill(0.5)) });
    const documents = Array(101).fill("short");
    const response = await post({ model: `test/cohere-${at}`, query: "q", documents });
    const bill = await billOfResponse(gateway, response);
    expect(bill).toMatchObject({ quantities: { search_units: 2 }, estimated: true });
  });
});

describe("the sandbox", () => {
  test("ranks what is near the query first, in the same way each time", async () => {
    const documents = ["Bread is baked in ovens.", "Paris is the capital of France.", ""];
    const ask = async () =>
      read(
        await post({ model: "sandbox/rerank", query: "What is the capital of France?", documents }),
      );
    const one = await ask();
    expect(one.results.map(({ index }) => index)[0]).toBe(1);
    for (const { relevance_score } of one.results) expect(relevance_score).toBeWithin(0, 1.000001);
    expect((await ask()).results).toEqual(one.results);
  });
});

test.each([
  [{ query: "" }, "query"],
  [{ documents: [] }, "documents"],
  [{ documents: [7] }, "documents"],
  [{ documents: [{ title: "x" }] }, "documents"],
  [{ top_n: 0 }, "top_n"],
  [{ query: undefined }, "query"],
])("a body with %j is 400", async (change, field) => {
  const refused = await post({ model: "sandbox/rerank", ...QUERY, ...change });
  const { error } = await expectError(refused, 400, "invalid_body");
  expect(error.param).toStartWith(field);
});

test("models of other kinds, keys without the scope and presets that are not there are refused", async () => {
  await expectError(await post({ model: "sandbox/chat", ...QUERY }), 400, "unsupported_model");
  const body = { model: "sandbox/rerank", ...QUERY };
  await expectError(await post({ ...body, preset: "none" }), 404, "preset_not_found");
  const key = await addSecretKey(gateway, { scopes: ["chat:completions"] });
  await expectError(await post(body, key), 403, "missing_scope");
  expect((await post(body, await addSecretKey(gateway, { scopes: ["embeddings"] }))).status).toBe(
    200,
  );
});

test("nothing is held any more, and the books are whole", () => expectBooksClosed(gateway));
