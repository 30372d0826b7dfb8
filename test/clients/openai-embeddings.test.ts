import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";

let upstream: Upstream;
let gateway: TestGateway;
beforeAll(async () => {
  upstream = await startUpstream();
  gateway = await startTestGateway({
    configuration: {
      providers: [
        { id: "replayed", type: "openai-compatible", base_url: upstream.baseUrl, api_key: "k" },
      ],
      models: [
        {
          id: "replayed/embed",
          category: "embedding",
          context_length: 512,
          input_cost_per_token: 1e-7,
          endpoints: [{ provider: "replayed", model: "embed" }],
        },
      ],
    },
  });
});
afterAll(async () => {
  await upstream.stop();
  await gateway.stop();
});

const post = (body: unknown) => gateway.request("POST", "/v1/embeddings", body);

const decoded = (text: string): number[] => {
  const bytes = Buffer.from(text, "base64");
  return Array.from({ length: bytes.length / 4 }, (_, at) => bytes.readFloatLE(4 * at));
};

const cosine = (one: number[], other: number[]) =>
  one.reduce((sum, value, at) => sum + value * other[at]!, 0);

for (const model of ["sandbox/embed", "replayed/embed"]) {
  test(`${model}: the SDK reads the same vectors as float and as base64`, async () => {
    const response = await post({ model, input: ["one", "two"] });
    expect(response.status).toBe(200);
    const plain = (await response.json()) as OpenAI.CreateEmbeddingResponse & {
      usage: { cost: number };
    };
    expect(plain).toMatchObject({ object: "list", model });
    expect(plain.data.map(({ index, object }) => [index, object])).toEqual([
      [0, "embedding"],
      [1, "embedding"],
    ]);
    expect(plain.usage.total_tokens).toBe(plain.usage.prompt_tokens);
    const price = model === "sandbox/embed" ? 2e-8 : 1e-7;
    const cost = plain.usage.prompt_tokens * price * 1.04;
    expect(plain.usage.cost).toBeCloseTo(cost, 9);
    expect(Number(response.headers.get("x-gateway-cost"))).toBe(plain.usage.cost);

    const client = new OpenAI({
      apiKey: gateway.secretKey,
      baseURL: `${gateway.baseUrl}/v1`,
    });
    for (const encoding_format of ["float", "base64", undefined] as const) {
      const { data } = await client.embeddings.create({
        model,
        input: ["one", "two"],
        ...(encoding_format && { encoding_format }),
      });
      for (const [at, { embedding }] of data.entries()) {
        // Asked for base64 by name, the SDK hands it on; else it asks for base64 itself and decodes it.
        const vector =
          encoding_format === "base64" ? decoded(embedding as unknown as string) : embedding;
        expect(vector.map(Math.fround)).toEqual(plain.data[at]!.embedding.map(Math.fround));
      }
    }
  });
}

test("base64 is little-endian float32", async () => {
  const floats = await (await post({ model: "sandbox/embed", input: "a text" })).json();
  const text = await (
    await post({ model: "sandbox/embed", input: "a text", encoding_format: "base64" })
  ).json();
  const bytes = Buffer.from(text.data[0].embedding, "base64");
  const vector = floats.data[0].embedding as number[];
  expect(bytes.length).toBe(4 * vector.length);
  expect(vector.map((_, at) => bytes.readFloatLE(4 * at))).toEqual(vector.map(Math.fround));
});

test("in the sandbox similar texts are near, and vectors can be shortened", async () => {
  const input = ["the cat sat on the mat", "a cat sat on a mat", "quarterly revenue fell by half"];
  for (const dimensions of [undefined, 256, 32]) {
    const { data } = await (await post({ model: "sandbox/embed", input, dimensions })).json();
    const [one, near, far] = data.map(({ embedding }: { embedding: number[] }) => embedding);
    expect(one).toHaveLength(dimensions ?? 1536);
    expect(cosine(one, one)).toBeCloseTo(1, 5);
    expect(cosine(one, near)).toBeGreaterThan(cosine(one, far) + 0.2);
  }
});

test.each([
  ["an empty text", { input: "" }, 400, "invalid_body"],
  ["an empty list", { input: [] }, 400, "invalid_body"],
  ["an empty text in a list", { input: ["a", ""] }, 400, "invalid_body"],
  ["an empty list of tokens", { input: [[]] }, 400, "invalid_body"],
  ["no input", {}, 400, "invalid_body"],
  ["a chat model", { model: "sandbox/chat", input: "a" }, 400, "unsupported_model"],
  ["too many dimensions", { input: "a", dimensions: 5_000 }, 400, "provider_rejected"],
  ["too many words", { input: "word ".repeat(9_000) }, 413, "input_too_long"],
  ["too long a word", { input: "x".repeat(40_000) }, 413, "input_too_long"],
  ["too many tokens", { input: [new Array(8_193).fill(7)] }, 413, "input_too_long"],
] as const)("%s is refused by its status", async (_, body, status, code) => {
  const response = await post({ model: "sandbox/embed", ...body });
  expect([response.status, (await response.json()).error.code]).toEqual([status, code]);
});

test("the bill of a call is one transaction of exactly its tokens and the fee, and a budget binds", async () => {
  const response = await post({ model: "replayed/embed", input: "a text to be billed" });
  const { usage } = await response.json();
  const [row] = await gateway.sql`
    SELECT amount_nano, model, prompt_tokens, completion_tokens, description FROM transactions
    WHERE request_id = ${response.headers.get("x-gateway-request-id")}`;
  // 100 nano-USD a token, and 4 % of it.
  expect(row).toMatchObject({
    amount_nano: -BigInt(usage.prompt_tokens) * 104n,
    model: "replayed/embed",
    prompt_tokens: BigInt(usage.prompt_tokens),
    completion_tokens: 0n,
    description: "Embeddings: replayed/embed",
  });
  const made = await gateway.request(
    "POST",
    "/v1/keys",
    { name: "poor", daily_budget_usd: 0.000000001 },
    { key: gateway.managementKey },
  );
  const { key } = await made.json();
  const poor = { model: "replayed/embed", input: "a text" };
  const refused = await gateway.request("POST", "/v1/embeddings", poor, { key });
  expect([refused.status, (await refused.json()).error.code]).toEqual([402, "budget_exhausted"]);
});

test("lists of tokens are embedded, and the same key of idempotency is billed once", async () => {
  const body = {
    model: "sandbox/embed",
    input: [[1, 2, 3], [4]],
    metadata: { idempotency_key: "e1" },
  };
  const first = await post(body);
  const again = await post(body);
  expect((await first.json()).usage.prompt_tokens).toBe(4);
  expect(again.headers.get("x-gateway-idempotent-replay")).toBe("true");
  await again.arrayBuffer();
});

test("the endpoint and its model are listed", async () => {
  const models = await (await gateway.request("GET", "/v1/models")).json();
  expect(models.data.map(({ id }: { id: string }) => id)).toContain("sandbox/embed");
  const document = await (await gateway.request("GET", "/openapi.json")).json();
  expect(document.paths["/v1/embeddings"].post.tags).toEqual(["Embeddings"]);
});
