import { afterAll, expect, test } from "bun:test";
import { systemClock } from "../../src/lib/clock.ts";
import { createGeminiProvider } from "../../src/providers/gemini/gemini-provider.ts";
import { type EmbedCall, ProviderFailure } from "../../src/providers/interface.ts";
import { createHttpClient } from "../../src/providers/transport/http-client.ts";

/** Embeddings over Google's wire, and what it says of a key. There is no recording of either. */

interface Asked {
  readonly path: string;
  readonly body: { readonly requests: readonly Record<string, unknown>[] } | undefined;
}
let asked: Asked[] = [];
let respond: (asked: Asked) => Response;
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const text = await request.text();
    const one = {
      path: new URL(request.url).pathname,
      body: text === "" ? undefined : JSON.parse(text),
    };
    asked.push(one);
    return respond(one);
  },
});
afterAll(() => server.stop(true));

const provider = createGeminiProvider(
  {
    id: "google",
    type: "google",
    baseUrl: `http://127.0.0.1:${server.port}/v1beta`,
    apiKey: "AIzaKeyOfTheTest0123456789",
    connectTimeoutMs: 1_000,
  },
  { clock: systemClock, httpClient: createHttpClient({ clock: systemClock }) },
);

function embed(inputs: EmbedCall["inputs"], more: Partial<EmbedCall> = {}) {
  asked = [];
  return provider.embed!({
    model: "gemini-embedding-001",
    requestId: "req_1",
    signal: new AbortController().signal,
    inputs,
    fields: {},
    ...more,
  });
}

const failure = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    (error: unknown) => (error instanceof ProviderFailure ? error : undefined),
  );

/** The place of each text, as its only number. */
const inOrder = ({ body }: Asked, usageMetadata?: object) =>
  Response.json({
    embeddings: body!.requests.map(({ content }) => {
      const { parts } = content as { parts: { text: string }[] };
      return { values: [Number(parts[0]!.text), 0.5] };
    }),
    usageMetadata,
  });

test("each text has its vector, in batches of a hundred", async () => {
  respond = (one) => inOrder(one, { promptTokenCount: one.body!.requests.length });
  const inputs = Array.from({ length: 250 }, (_, at) => String(at));
  const { vectors, usage } = await embed(inputs, {
    dimensions: 256,
    fields: { task_type: "RETRIEVAL_QUERY", other: 1 },
  });
  expect(asked.map(({ body }) => body!.requests.length)).toEqual([100, 100, 50]);
  expect(asked[0]!.path).toBe("/v1beta/models/gemini-embedding-001:batchEmbedContents");
  expect(asked[0]!.body!.requests[1]).toEqual({
    model: "models/gemini-embedding-001",
    content: { parts: [{ text: "1" }] },
    taskType: "RETRIEVAL_QUERY",
    outputDimensionality: 256,
  });
  expect(vectors.map((vector) => vector[0])).toEqual(inputs.map(Number));
  expect(usage).toMatchObject({ promptTokens: 250, completionTokens: 0, estimated: false });
});

test("usage that one batch does not report is counted by the gateway", async () => {
  respond = (one) => inOrder(one, asked.length === 1 ? { promptTokenCount: 9 } : undefined);
  const inputs = Array.from({ length: 101 }, (_, at) => String(at));
  expect((await embed(inputs)).usage).toBeUndefined();
});

test("lists of tokens are refused by name, before any call", async () => {
  const refused = await failure(embed([[1, 2, 3]]));
  expect(refused).toMatchObject({ kind: "rejected", param: "input" });
  expect(asked).toHaveLength(0);
});

test.each([
  ["too few", { embeddings: [] }],
  ["no list", { embeddings: 7 }],
  ["a text", { embeddings: [{ values: "AAAA" }] }],
  ["nothing in it", { embeddings: [{ values: [] }] }],
  ["no numbers", { embeddings: [{ values: [1, null] }] }],
  ["an error under 200", { error: { code: 500, message: "m" } }],
])("an answer with %s is a broken one", async (_, body) => {
  respond = () => Response.json(body);
  expect(await failure(embed(["a"]))).toMatchObject({ kind: "unavailable" });
});

test("a key is refused by its reason, although the status is 400", async () => {
  const details = [{ "@type": "x", reason: "API_KEY_INVALID" }];
  respond = () => Response.json({ error: { code: 400, message: "no", details } }, { status: 400 });
  expect(await failure(provider.checkKey!())).toMatchObject({ kind: "misconfigured" });
  respond = () => new Response("", { status: 500 });
  expect(await failure(provider.checkKey!())).toMatchObject({ kind: "unavailable" });
  for (const status of [200, 404]) {
    respond = () => Response.json({}, { status });
    expect(await provider.checkKey!()).toBeUndefined();
  }
});
