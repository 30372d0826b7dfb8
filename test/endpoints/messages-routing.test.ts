import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import Anthropic from "@anthropic-ai/sdk";
import { framed } from "../support/anthropic-recordings.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { messageEvents } from "../support/message-events.ts";

/** One model with an endpoint of Anthropic's wire and one of OpenAI's behind it. */

type Fields = Record<string, unknown>;

const KEEPALIVE_MS = 1_000;
const ANSWER = "from the second";
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    if (request.method === "GET") return Response.json({ object: "list", data: [] });
    const { pathname } = new URL(request.url);
    const body = (await request.json()) as Fields;
    seen.push({ pathname, body });
    return pathname.startsWith("/first") ? first(body) : second(body);
  },
});
let first: (body: Fields) => Response | Promise<Response>;
const seen: { readonly pathname: string; readonly body: Fields }[] = [];

function second({ stream }: Fields): Response {
  const usage = { prompt_tokens: 30, completion_tokens: 4 };
  const choice = (rest: Fields) => ({ choices: [{ index: 0, ...rest }] });
  if (stream !== true) {
    const message = { role: "assistant", content: ANSWER };
    return Response.json({ ...choice({ message, finish_reason: "stop" }), usage });
  }
  const chunks = [
    choice({ delta: { content: ANSWER } }),
    choice({ delta: {}, finish_reason: "stop" }),
    { choices: [], usage },
  ];
  const text = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("");
  return new Response(`${text}data: [DONE]\n\n`, {
    headers: { "content-type": "text/event-stream" },
  });
}

const overloaded = () => {
  const error = { type: "overloaded_error", message: "Overloaded" };
  return Response.json({ type: "error", error }, { status: 529 });
};

let gateway: TestGateway;
beforeAll(async () => {
  const base = `http://127.0.0.1:${server.port}`;
  const model = (id: string, providers: readonly string[]) => ({
    id,
    category: "chat",
    context_length: 100_000,
    max_output_tokens: 8_000,
    input_cost_per_token: 1e-6,
    output_cost_per_token: 4e-6,
    capabilities: ["streaming", "function_calling"],
    endpoints: providers.map((provider) => ({ provider, model: "claude-opus-5" })),
  });
  gateway = await startTestGateway({
    plan: "enterprise",
    environment: { GATEWAY_KEEPALIVE_MS: String(KEEPALIVE_MS) },
    configuration: {
      providers: [
        { id: "one", type: "anthropic", base_url: `${base}/first`, api_key: "k" },
        { id: "two", type: "openai", base_url: `${base}/second`, api_key: "k" },
      ],
      models: [model("test/both", ["one", "two"]), model("test/two", ["two"])],
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await server.stop(true);
});
afterEach(() => expectBooksClosed(gateway));

const BODY = {
  model: "test/both",
  max_tokens: 1_000,
  messages: [{ role: "user", content: "hello" }],
};
const send = (body: Fields = {}, headers: Record<string, string> = {}) =>
  gateway.request("POST", "/v1/messages", { ...BODY, ...body }, { headers });

/** What Claude Code sends besides the prompt. */
const AGENT = {
  thinking: { type: "adaptive" },
  output_config: { effort: "high", format: { type: "json_schema", schema: { type: "object" } } },
  context_management: { edits: [{ type: "clear_thinking_20251015" }] },
  metadata: { user_id: "u".repeat(160) },
  system: [{ type: "text", text: "Be.", cache_control: { type: "ephemeral", ttl: "1h" } }],
  tool_choice: { type: "auto", disable_parallel_tool_use: true },
};

describe("where Anthropic's wire fails, another takes over", () => {
  test.each([true, false])(
    "and the answer is a message all the same (stream %p)",
    async (stream) => {
      first = overloaded;
      const response = await send({ stream, route_explain: true, ...AGENT });
      expect(response.status).toBe(200);
      expect(response.headers.get("x-gateway-provider")).toBe("two");
      expect(response.headers.get("x-gateway-route-explain")).toContain("tried: one/claude-opus-5");
      const dropped = response.headers.get("x-gateway-dropped-parameters")!.split(", ");
      expect(dropped).toContain("context_management");
      expect(dropped).toContain("cache_control");
      expect(dropped).toContain("metadata.user_id");
      expect(JSON.stringify(seen.at(-1)!.body)).not.toContain("cache_control");
      const text = await response.text();
      if (stream) expect(messageEvents(text).at(-1)).toEqual({ type: "message_stop" });
      expect(text).toContain(ANSWER);
      expect(await billOfResponse(gateway, response)).toMatchObject({
        provider: "two",
        promptTokens: 30,
        completionTokens: 4,
        chargeNano: 46_000n,
      });
    },
  );

  test("a stream that ends before its first event counts as a failure, too", async () => {
    const message = { id: "m", type: "message", role: "assistant", content: [] };
    const cut = framed([{ type: "message_start", message }]);
    first = () => new Response(cut, { headers: { "content-type": "text/event-stream" } });
    const response = await send({ stream: true });
    expect(response.headers.get("x-gateway-provider")).toBe("two");
    expect(await response.text()).toContain(ANSWER);
  });

  test("what the caller did wrong is not tried elsewhere", async () => {
    const error = { type: "invalid_request_error", message: "odd" };
    first = () => Response.json({ type: "error", error }, { status: 400 });
    const before = seen.length;
    const response = await send();
    expect(response.status).toBe(400);
    expect(seen.length).toBe(before + 1);
    expect(await response.json()).toMatchObject({ error: { message: "odd" } });
  });
});

describe("fields and betas that a model lacks", () => {
  test("are left out and listed, never refused", async () => {
    const response = await send(
      { model: "test/two", ...AGENT, container: "c", top_k: 5 },
      { "anthropic-beta": "context-management-2025-06-27,never-heard-of-1" },
    );
    expect(response.status).toBe(200);
    await response.text();
    const dropped = response.headers.get("x-gateway-dropped-parameters")!.split(", ");
    expect(dropped.toSorted()).toEqual(
      [
        "anthropic-beta.context-management-2025-06-27",
        "anthropic-beta.never-heard-of-1",
        "cache_control",
        "container",
        "context_management",
        "metadata.user_id",
        "top_k",
      ].toSorted(),
    );
  });

  test("count where the caller requires all of them", async () => {
    const response = await send({
      model: "test/two",
      top_k: 5,
      provider: { require_parameters: true },
    });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { code: "unsupported_parameter" } });
  });
});

test("a cache of an hour that has no price is one of five minutes", async () => {
  first = () =>
    Response.json({
      ...{ id: "m", type: "message", role: "assistant", model: "m", stop_reason: "end_turn" },
      ...{ content: [], usage: { input_tokens: 5, output_tokens: 1 } },
    });
  const long = { type: "ephemeral", ttl: "1h" };
  const usual = { type: "ephemeral" };
  const bodyOf = (cache_control: Fields) => ({
    cache_control,
    system: [{ type: "text", text: "Be.", cache_control }],
    messages: [
      {
        role: "user",
        content: [
          {
            type: "document",
            source: { type: "content", content: [{ type: "text", text: "a", cache_control }] },
          },
          { type: "text", text: "b", cache_control: usual },
        ],
      },
    ],
    tools: [{ name: "look", input_schema: {}, cache_control }],
  });
  const response = await send(bodyOf(long));
  expect(response.status).toBe(200);
  expect(response.headers.get("x-gateway-dropped-parameters")).toBe("cache_control.ttl");
  expect(seen.at(-1)!.body).toEqual({
    ...bodyOf(usual),
    model: "claude-opus-5",
    max_tokens: 1_000,
  });
});

test("a silent provider is awaited with pings, which Anthropic's client passes over", async () => {
  const released = Promise.withResolvers<void>();
  first = async () => {
    await released.promise;
    return overloaded();
  };
  const client = new Anthropic({ apiKey: gateway.secretKey, baseURL: gateway.baseUrl });
  const stream = client.messages.stream(BODY as Anthropic.MessageCreateParamsNonStreaming);
  const message = stream.finalMessage();
  const response = await send({ stream: true });
  expect(response.status).toBe(200);
  const reader = response.body!.getReader();
  const { value } = await reader.read();
  expect(messageEvents(new TextDecoder().decode(value))[0]).toEqual({ type: "ping" });
  released.resolve();
  expect((await message).content).toEqual([
    expect.objectContaining({ type: "text", text: ANSWER }),
  ]);
  let rest = "";
  for (;;) {
    const { done, value: piece } = await reader.read();
    if (done) break;
    rest += new TextDecoder().decode(piece);
  }
  expect(messageEvents(rest).at(-1)).toEqual({ type: "message_stop" });
});

describe("an idempotency key", () => {
  test("brings the same message back without a second call", async () => {
    const headers = { "idempotency-key": crypto.randomUUID() };
    const one = await send({ model: "test/two" }, headers);
    const body = await one.json();
    const before = seen.length;
    const other = await send({ model: "test/two" }, headers);
    expect(other.headers.get("x-gateway-idempotent-replay")).toBe("true");
    expect(other.headers.get("request-id")).toBe(other.headers.get("x-gateway-request-id"));
    expect(await other.json()).toEqual(body);
    expect(seen.length).toBe(before);
    const changed = await send({ model: "test/two", max_tokens: 999 }, headers);
    expect(changed.status).toBe(409);
    expect(await changed.json()).toMatchObject({ error: { type: "invalid_request_error" } });
  });
});

describe("counting", () => {
  test("asks where the first candidate counts, and goes on to another key of that wire only", async () => {
    first = () => Response.json({ input_tokens: 12 });
    const count = (model: string) =>
      gateway.request("POST", "/v1/messages/count_tokens", { ...BODY, model });
    expect(await (await count("test/both")).json()).toEqual({ input_tokens: 12 });
    const { input_tokens: tokens } = (await (await count("test/two")).json()) as Fields;
    expect(tokens).toBeWithin(2, 20);
    first = overloaded;
    const failed = await count("test/both");
    expect(failed.status).toBe(503);
    expect(await failed.json()).toMatchObject({ error: { type: "overloaded_error" } });
  });
});
