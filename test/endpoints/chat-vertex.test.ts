import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { decodeJwt } from "jose";
import {
  expectedOf,
  messageOfStream,
  STREAMS,
  streamText,
  WHOLE,
  wholeMessage,
} from "../support/anthropic-recordings.ts";
import { chargeNano, MAX_OUTPUT_TOKENS, PRICES } from "../support/chat-gateway.ts";
import {
  type CloudAnswer,
  type CloudUpstream,
  KEY_LINE,
  serviceAccount,
  startCloudUpstream,
} from "../support/cloud-upstream.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, readStream } from "../support/stream-reader.ts";
import { geminiRecordings } from "../upstream/gemini-recordings.ts";

/**
 * Vertex AI through the whole gateway. There is no recording of it but of embeddings: it sends what Gemini and
 * Anthropic send, so their recordings are replayed at its addresses.
 */

type Fields = Record<string, unknown>;

const GEMINI = "gemini-3-pro-preview";
const CLAUDE = "claude-opus-5";
const LLAMA = "meta/llama-3.3-70b-instruct-maas";
/** Its token endpoint fails. */
const DOWN = "down@project-of-the-test.iam.gserviceaccount.com";

let google: CloudUpstream;
let gateway: TestGateway;
let isDown = true;
beforeAll(async () => {
  google = startCloudUpstream();
  const usd = (femto: bigint) => Number(femto) / 1e15;
  const model = (id: string, endpoints: readonly object[], more: object = {}) => ({
    id: `test/${id}`,
    category: "chat",
    context_length: 128_000,
    max_output_tokens: MAX_OUTPUT_TOKENS,
    input_cost_per_token: usd(PRICES.inputFemto),
    output_cost_per_token: usd(PRICES.outputFemto),
    cached_input_cost_per_token: usd(PRICES.cachedFemto),
    cache_write_input_cost_per_token: usd(PRICES.inputFemto),
    capabilities: ["streaming", "function_calling", "vision"],
    endpoints,
    ...more,
  });
  const at = (provider: string, name: string) => ({ provider, model: name });
  const base = { type: "vertex", base_url: google.baseUrl };
  gateway = await startTestGateway({
    configuration: {
      providers: [
        { ...base, id: "vertex", api_key: serviceAccount(google.origin) },
        { ...base, id: "down", api_key: serviceAccount(google.origin, { client_email: DOWN }) },
      ],
      models: [
        model("gemini", [at("vertex", GEMINI)]),
        model("claude", [at("vertex", CLAUDE)]),
        model("llama", [at("vertex", LLAMA)]),
        model("alone", [at("down", "gemini-alone")]),
        model("chain", [at("down", GEMINI), at("vertex", "gemini-chain")]),
        model("shared", [at("vertex", "gemini-shared")]),
        model("pictures", [at("vertex", "claude-opus-4-6"), at("vertex", "gemini-pictures")]),
        model("embed", [at("vertex", "text-embedding-005")], { category: "embedding" }),
      ],
    },
  });
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
  await google.stop();
});
beforeEach(() => {
  google.asked.length = 0;
  google.tokenAnswer = (form) => {
    const { iss } = decodeJwt(form.get("assertion") ?? "");
    return isDown && iss === DOWN
      ? new Response(KEY_LINE, { status: 503 })
      : Response.json({
          access_token: `ya29.${google.tokenRequests}-of-${iss}`,
          expires_in: 3_599,
        });
  };
});

function chat(model: string, body: Fields = {}, key?: string) {
  const messages = [{ role: "user", content: "hello" }];
  return gateway.request(
    "POST",
    "/v1/chat/completions",
    { model: `test/${model}`, messages, ...body },
    key === undefined ? {} : { key },
  );
}

let seed = 7;
/** A number from 1 to `most`: the same ones in each run. */
function random(most: number): number {
  seed = (seed * 48_271) % 2_147_483_647;
  return 1 + (seed % most);
}

/** A stream in pieces that end anywhere. */
function streamed(bytes: Uint8Array): Response {
  const body = new ReadableStream({
    async start(controller) {
      for (let at = 0; at < bytes.length; ) {
        const end = at + random(400);
        controller.enqueue(bytes.slice(at, end));
        at = end;
        await Bun.sleep(0);
      }
      controller.close();
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

const STREAMED = { stream: true, stream_options: { include_usage: true } };

async function whole(response: Response) {
  expect(response.status).toBe(200);
  const body = (await response.json()) as { choices: Fields[]; usage: Fields };
  const { message, finish_reason: finish } = body.choices[0] as { message: Fields } & Fields;
  return { content: message.content ?? "", finish, usage: body.usage };
}

async function read(response: Response, model: string) {
  expect(response.status).toBe(200);
  const stream = await readStream(response);
  expectStreamShape(stream, { model: `test/${model}`, includesUsage: true });
  return { content: stream.content, finish: stream.finishReason, usage: stream.usage as Fields };
}

describe("recorded answers of Gemini", () => {
  test.each(geminiRecordings())("$name comes through, and its charge is exact", async (one) => {
    const { stream, bytes, expected, responses } = one;
    google.answer = () => (stream ? streamed(bytes) : Response.json(responses[0]));
    const response = await chat("gemini", stream ? STREAMED : {});
    const got = stream ? await read(response, "gemini") : await whole(response);
    expect(google.asked[0]!.path).toEndWith(
      `/publishers/google/models/${GEMINI}:${stream ? "streamGenerateContent?alt=sse" : "generateContent"}`,
    );
    expect(got.content).toBe(expected.content);
    expect(got.finish).toBe(expected.calls.length > 0 ? "tool_calls" : "stop");
    const { promptTokens: prompt, completionTokens: completion } = expected;
    expect(await billOfResponse(gateway, response)).toMatchObject({
      chargeNano: chargeNano({ prompt, completion }),
      provider: "vertex",
      estimated: false,
    });
  });
});

describe("recorded answers of Anthropic", () => {
  test.each(STREAMS)("%s comes through, and its charge is exact", async (name) => {
    const text = streamText(name);
    google.answer = () => streamed(Buffer.from(text));
    const response = await chat("claude", STREAMED);
    await expectClaude(response, await read(response, "claude"), messageOfStream(text));
    expect(google.asked[0]!.path).toEndWith(`/models/${CLAUDE}:streamRawPredict`);
    expect(google.asked[0]!.body).toMatchObject({
      anthropic_version: "vertex-2023-10-16",
      max_tokens: MAX_OUTPUT_TOKENS,
      stream: true,
    });
    expect(google.asked[0]!.body.model).toBeUndefined();
  });

  test.each(WHOLE)("%s comes through, and its charge is exact", async (name) => {
    const message = wholeMessage(name);
    google.answer = () => Response.json(message);
    const response = await chat("claude");
    await expectClaude(response, await whole(response), message);
    expect(google.asked[0]!.path).toEndWith(`/models/${CLAUDE}:rawPredict`);
  });

  async function expectClaude(
    response: Response,
    got: { content: unknown; finish: unknown },
    message: Fields,
  ) {
    const { content, finish, tokens } = expectedOf(message);
    expect(got).toMatchObject({ content, finish });
    const prompt = tokens.input + tokens.cached + tokens.written;
    expect(await billOfResponse(gateway, response)).toMatchObject({
      chargeNano: chargeNano({ prompt, cached: tokens.cached, completion: tokens.output }),
      estimated: false,
    });
  }
});

test("a long body, which a thread renders, goes without ids, and again where a token is refused", async () => {
  const long = "x".repeat(100_000);
  const call = { id: "c1", type: "function", function: { name: "f", arguments: "{}" } };
  const messages = [
    { role: "user", content: long },
    { role: "assistant", tool_calls: [call] },
    { role: "tool", tool_call_id: "c1", content: "done" },
  ];
  let refusals = 0;
  google.answer = () =>
    refusals++ === 0
      ? Response.json({ error: { code: 401, message: "expired" } }, { status: 401 })
      : Response.json(GEMINI_ANSWER);
  const response = await chat("shared", { messages, max_tokens: 20 });
  expect(await whole(response)).toMatchObject({ content: "hi" });
  expect(google.asked).toHaveLength(2);
  const [first, second] = google.asked.map(({ body }) => JSON.stringify(body));
  expect(second).toBe(first!);
  expect(second).toContain(long);
  expect(second).not.toContain("c1");
});

const GEMINI_ANSWER = {
  candidates: [{ content: { role: "model", parts: [{ text: "hi" }] }, finishReason: "STOP" }],
  usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 5, trafficType: "ON_DEMAND" },
};
const ofGemini: CloudAnswer = () => Response.json(GEMINI_ANSWER);
const CHARGE = chargeNano({ prompt: 10, completion: 5 });

test("other publishers' models answer in OpenAI's form, whole and streamed", async () => {
  const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
  const chunk = (choices: unknown[], more: Fields = {}) =>
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: LLAMA, choices, ...more })}\n\n`;
  const text = `${chunk([{ index: 0, delta: { role: "assistant", content: "hi" }, finish_reason: null }])}${chunk([{ index: 0, delta: {}, finish_reason: "stop" }], { usage })}data: [DONE]\n\n`;
  const message = { role: "assistant", content: "hi" };
  const choices = [{ index: 0, message, finish_reason: "stop" }];
  google.answer = ({ body }) =>
    body.stream === true
      ? streamed(Buffer.from(text))
      : Response.json({ id: "c", object: "chat.completion", created: 1, choices, usage });
  for (const body of [{}, STREAMED]) {
    const response = await chat("llama", body);
    const isStream = "stream" in body;
    const got = isStream ? await read(response, "llama") : await whole(response);
    expect(got).toMatchObject({ content: "hi", finish: "stop" });
    expect(google.asked.at(-1)).toMatchObject({ body: { model: LLAMA } });
    expect(google.asked.at(-1)!.path).toEndWith("/endpoints/openapi/chat/completions");
    expect((await billOfResponse(gateway, response)).chargeNano).toBe(CHARGE);
  }
});

test("embeddings are charged by the tokens that Vertex AI counts", async () => {
  google.answer = ({ body }) =>
    Response.json({
      predictions: (body.instances as unknown[]).map(() => ({
        embeddings: { values: [0.5, -0.5], statistics: { token_count: 4, truncated: false } },
      })),
    });
  const response = await gateway.request("POST", "/v1/embeddings", {
    model: "test/embed",
    input: ["the first text", "the second text"],
  });
  expect(response.status).toBe(200);
  const { data } = (await response.json()) as { data: { embedding: number[] }[] };
  expect(data.map(({ embedding }) => embedding)).toEqual([
    [0.5, -0.5],
    [0.5, -0.5],
  ]);
  const bill = await billOfResponse(gateway, response);
  expect(bill).toMatchObject({ promptTokens: 8, estimated: false });
  expect(bill.chargeNano).toBe(chargeNano({ prompt: 8, completion: 0 }));
});

test("a picture at an address, which Claude does not take here, goes to an endpoint that does", async () => {
  google.answer = ofGemini;
  const picture = { type: "image_url", image_url: { url: "https://example.com/a.png" } };
  const messages = [{ role: "user", content: [picture] }];
  const refused = await chat("claude", { messages });
  expect(refused.status).toBe(400);
  expect(await refused.json()).toMatchObject({
    error: { code: "unsupported_parameter", param: "messages.0.content.0" },
  });
  expect(await whole(await chat("pictures", { messages }))).toMatchObject({ content: "hi" });
  expect(google.asked.map(({ path }) => path.slice(path.lastIndexOf("/")))).toEqual([
    "/gemini-pictures:generateContent",
  ]);
});

describe("a token endpoint that fails", () => {
  test("is 502 without another endpoint, and tells nothing of the credentials", async () => {
    google.answer = ofGemini;
    for (const body of [{}, STREAMED]) {
      const response = await chat("alone", body);
      expect([502, 503]).toContain(response.status);
      const text = await response.text();
      expect(text).not.toContain(KEY_LINE);
      expect(text).not.toContain("token");
    }
    expect(google.asked).toHaveLength(0);
  });

  test("leads to the next endpoint, without a wait", async () => {
    google.answer = ofGemini;
    const requests = google.tokenRequests;
    for (let round = 0; round < 5; round++) {
      const response = await chat("chain");
      expect(await whole(response)).toMatchObject({ content: "hi" });
      expect(await billOfResponse(gateway, response)).toMatchObject({
        provider: "vertex",
        chargeNano: CHARGE,
      });
    }
    expect(google.tokenRequests - requests).toBeLessThan(3);
    expect(gateway.logLines.join("")).not.toContain(KEY_LINE);
    expect(gateway.logLines.join("")).not.toContain("ya29.");
  });

  test("recovers by itself", async () => {
    google.answer = ofGemini;
    isDown = false;
    const deadlineMs = Date.now() + 15_000;
    let provider = "";
    while (provider !== "down" && Date.now() < deadlineMs) {
      await Bun.sleep(200);
      // A conversation that has moved stays where it is.
      const response = await chat("chain", { session_id: crypto.randomUUID() });
      await response.arrayBuffer();
      provider = (await billOfResponse(gateway, response)).provider;
    }
    expect(provider).toBe("down");
  }, 60_000);
});

test("an organization's key that is refused fails no call of others", async () => {
  const theirs = await gateway.addOrganization();
  const key = "AQ.KeyOfAnOrganization0123456789";
  google.answer = () => Response.json({ totalTokens: 1 });
  const body = { provider: "vertex", key };
  const added = await gateway.request("POST", "/v1/provider_keys", body, {
    key: theirs.managementKey,
  });
  expect(added.status).toBe(201);
  expect(google.asked[0]!.path).toBe("/v1/publishers/google/models/gemini-2.5-flash:countTokens");
  let own = 0;
  google.answer = ({ headers }) => {
    if (headers.get("x-goog-api-key") !== key) return Response.json(GEMINI_ANSWER);
    own++;
    const error = { code: 401, message: `no ${key}`, status: "UNAUTHENTICATED" };
    return Response.json({ error }, { status: 401 });
  };
  const answers = await Promise.all(
    Array.from({ length: 20 }, async (_, at) => {
      const response = await chat("shared", {}, at % 2 === 0 ? theirs.secretKey : undefined);
      const text = await response.text();
      expect(text).not.toContain(key);
      return response.status;
    }),
  );
  expect(own).toBePositive();
  expect(new Set(answers)).toEqual(new Set([200]));
});

test("credentials of an organization that are none are refused", async () => {
  const theirs = await gateway.addOrganization();
  const key = Buffer.from(JSON.stringify({ type: "service_account" })).toString("base64");
  const body = { provider: "vertex", key };
  const added = await gateway.request("POST", "/v1/provider_keys", body, {
    key: theirs.managementKey,
  });
  expect(added.status).toBe(400);
  expect(await added.json()).toMatchObject({
    error: { code: "invalid_provider_key", param: "key" },
  });
});
