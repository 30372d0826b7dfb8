import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";

let gateway: ChatGateway;
let slug: string;
beforeAll(async () => {
  gateway = await startChatGateway();
  slug = gateway.modelThat({ do: "complete" });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const MESSAGES = [{ role: "user", content: "hello" }];
const TOOL = {
  type: "function",
  function: { name: "f", description: "d", parameters: { type: "object" }, strict: true },
};

const TEXT = { type: "text", text: "a" };
const cached = (ttl: string) => ({ cache_control: { type: "ephemeral", ttl } });

/** What reached the provider of a request that was accepted. */
async function received(body: Record<string, unknown>): Promise<Record<string, unknown>> {
  const response = await gateway.chat(slug, body);
  expect(response.status).toBe(200);
  await response.arrayBuffer();
  return gateway.upstream.served.at(-1)!.requestBody!;
}

describe("a provider receives", () => {
  test("model under its own name and messages, and nothing that was not said", async () => {
    expect(await received({})).toEqual({ model: slug, messages: MESSAGES });
  });

  test("every sampling, tool and output field as it was sent", async () => {
    const fields = {
      temperature: 0.5,
      max_tokens: 10,
      top_p: 0.25,
      top_k: 3,
      frequency_penalty: -0.5,
      presence_penalty: 0.5,
      repetition_penalty: 1.25,
      min_p: 0.1,
      seed: -7,
      stop: ["a", "b"],
      logit_bias: { 50256: -100 },
      n: 2,
      tools: [TOOL],
      tool_choice: { type: "function", function: { name: "f" } },
      parallel_tool_calls: false,
      response_format: {
        type: "json_schema",
        json_schema: { name: "s", strict: true, schema: { type: "object" } },
      },
      reasoning: { effort: "low" },
      modalities: ["text"],
      user: "someone",
      store: false,
    };
    expect(await received(fields)).toEqual({ model: slug, messages: MESSAGES, ...fields });
  });

  test("tool_choice in each of OpenAI's forms", async () => {
    const tools = [TOOL, { type: "custom", custom: { name: "c" } }];
    const named = { type: "function", function: { name: "f" } };
    for (const tool_choice of [
      { type: "custom", custom: { name: "c" } },
      { type: "allowed_tools", allowed_tools: { mode: "auto", tools: [named] } },
      { type: "allowed_tools", allowed_tools: { mode: "required", tools: [named] } },
    ]) {
      const body = await received({ tools, tool_choice });
      expect(body).toEqual({ model: slug, messages: MESSAGES, tools, tool_choice });
    }
  });

  test("unknown fields and unknown members untouched, however they are built", async () => {
    const fields = {
      logprobs: true,
      top_logprobs: 2,
      service_tier: "default",
      search_parameters: { mode: "off" },
      tools: [TOOL, { type: "custom", custom: { name: "c" } }],
      prediction: { type: "content", content: "a" },
      x_custom: { deep: [1, { a: null }, "ü\u2028"], n: 1e21, small: 1e-7 },
      "odd name \n": false,
    };
    expect(await received(fields)).toEqual({ model: slug, messages: MESSAGES, ...fields });
    const messages = [
      {
        role: "user",
        content: [
          { type: "text", text: "a", cache_control: { type: "ephemeral" } },
          { ...TEXT, ...cached("5m") },
          { type: "image_url", image_url: { url: "data:image/png;base64,AA==", detail: "low" } },
        ],
        x_note: [1],
      },
    ];
    expect(await received({ messages })).toEqual({ model: slug, messages });
  });

  test("a tier of service that costs no more, and tools that the caller carries out", async () => {
    const custom = { type: "custom", custom: { name: "c" } };
    for (const service_tier of ["default", "flex"]) {
      const fields = { service_tier, tools: [TOOL, custom] };
      expect(await received(fields)).toEqual({ model: slug, messages: MESSAGES, ...fields });
    }
  });

  test("max_completion_tokens as the limit, under the name that it takes; the newer of the two counts", async () => {
    expect(await received({ max_completion_tokens: 9 })).toMatchObject({ max_tokens: 9 });
    const both = await received({ max_completion_tokens: 9, max_tokens: 20 });
    expect(both).toEqual({ model: slug, messages: MESSAGES, max_tokens: 9 });
  });

  test("the question for usage in every stream, although the client did not ask", async () => {
    for (const options of [undefined, null, {}, { include_usage: false }]) {
      const body = await received({ stream: true, stream_options: options });
      expect(body).toMatchObject({ stream: true, stream_options: { include_usage: true } });
    }
    expect(await received({ stream_options: { include_usage: true } })).toEqual({
      model: slug,
      messages: MESSAGES,
    });
  });

  test("none of the gateway's own fields", async () => {
    const own = {
      models: [`test/${slug}`],
      provider: { order: ["primary"], allow_fallbacks: false },
      route: "fallback",
      route_explain: true,
      session_id: "s",
      trace: { a: 1 },
      metadata: { a: "b", idempotency_key: crypto.randomUUID() },
      include_reasoning: true,
      plugins: [],
      transforms: [],
      debug: {},
      preset: null,
      guardrail: null,
      web_search_options: null,
      cache_control: null,
      interleaved_thinking: false,
      usage: { include: true },
    };
    expect(await received(own)).toEqual({ model: slug, messages: MESSAGES });
  });

  test("metadata only where it is to store the answer, and never the idempotency key", async () => {
    const metadata = { a: "b", idempotency_key: crypto.randomUUID() };
    expect(await received({ store: true, metadata })).toMatchObject({
      store: true,
      metadata: { a: "b" },
    });
    expect(JSON.stringify(gateway.upstream.served.at(-1)!.requestBody)).not.toContain(
      "idempotency",
    );
  });

  test("its own key, and neither the client's key nor the client's headers", async () => {
    await gateway.chat(slug, {}, { headers: { "x-client": "secret", cookie: "a=b" } });
    const { headers } = gateway.upstream.served.at(-1)!;
    expect(headers.authorization).toBe("Bearer sk-upstream-0123456789");
    expect(headers["content-type"]).toBe("application/json");
    expect(JSON.stringify(headers)).not.toContain(gateway.secretKey);
    expect(headers["x-client"]).toBeUndefined();
    expect(headers.cookie).toBeUndefined();
  });

  test("the limit that the money left allows, which the client is told", async () => {
    // Pays for the prompt's bound and 1,000 tokens, not for the model's 4,096 (prices in chat-gateway.ts).
    const key = await addSecretKey(gateway, { dailyBudgetNano: 480_000n });
    const response = await gateway.chat(slug, {}, { key });
    expect(response.status).toBe(200);
    const limit = Number(response.headers.get("x-gateway-max-tokens"));
    expect(limit).toBeGreaterThanOrEqual(990);
    expect(limit).toBeLessThanOrEqual(1_010);
    expect(gateway.upstream.served.at(-1)!.requestBody!.max_tokens).toBe(limit);
    const other = await gateway.chat(slug);
    expect(other.headers.get("x-gateway-max-tokens")).toBeNull();
  });
});

describe("what is not supported is 400 that names the field, never ignored in silence", () => {
  const UNSUPPORTED: [param: string, body: Record<string, unknown>][] = [
    ["cache_control.ttl", { cache_control: { type: "ephemeral", ttl: "1h" } }],
    ["transforms.0", { transforms: ["shuffle"] }],
    ["debug.echo_upstream_body", { debug: { echo_upstream_body: true } }],
    ["image_config", { image_config: { size: "1k" } }],
    ["modalities", { modalities: ["text", "image"] }],
    ["service_tier", { service_tier: "priority" }],
    ["speed", { speed: "fast" }],
    ["search_parameters", { search_parameters: { mode: "auto" } }],
    ["deferred", { deferred: true }],
    ["data_sources", { data_sources: [{ type: "azure_search" }] }],
    ["tools.1.type", { tools: [TOOL, { type: "browser_search" }] }],
    ["tools.0.type", { tools: [{ type: "builtin_function", function: { name: "$web_search" } }] }],
    [
      "messages.1.cache_control.ttl",
      { messages: [MESSAGES[0], { ...MESSAGES[0], ...cached("1h") }] },
    ],
    [
      "messages.0.content.1.cache_control.ttl",
      { messages: [{ role: "user", content: [TEXT, { ...TEXT, ...cached("1h") }] }] },
    ],
    ["tools.0.cache_control.ttl", { tools: [{ ...TOOL, ...cached("1h") }] }],
    [
      "tools.0.function.cache_control.ttl",
      { tools: [{ ...TOOL, function: { ...TOOL.function, ...cached("1h") } }] },
    ],
    ["provider.quantizations", { provider: { quantizations: ["fp8"] } }],
    ["provider.max_price.audio", { provider: { max_price: { audio: 1 } } }],
  ];
  test.each(UNSUPPORTED)("%s", async (param, body) => {
    const callsBefore = gateway.upstream.served.length;
    for (const stream of [false, true]) {
      const response = await gateway.chat(slug, { ...body, stream });
      const { error } = await expectError(response, 400, "unsupported_parameter");
      expect(error.param).toBe(param);
      expect(error.message).toContain(param);
    }
    expect(gateway.upstream.served).toHaveLength(callsBefore);
  });
});

test("user, session_id, trace and metadata are recorded with the charge, and no prompt is", async () => {
  const wanted = {
    user: "someone",
    session_id: "session",
    trace: { trace_id: "t", deep: [1] },
    metadata: { tier: "gold" },
  };
  const messages = [{ role: "user", content: "the secret prompt" }];
  for (const stream of [false, true]) {
    const response = await gateway.chat(slug, { ...wanted, messages, stream });
    if (stream) expect((await readStream(response)).isDone).toBeTrue();
    else await response.arrayBuffer();
    const bill = await billOfResponse(gateway, response);
    const {
      first_token_ms: firstTokenMs,
      queue_ms: _onSlowMachines,
      ...details
    } = bill.details as Record<string, unknown>;
    expect(details).toEqual({ ...wanted, price_source: "file" });
    expect(typeof firstTokenMs).toBe(stream ? "number" : "undefined");
  }
  expect(gateway.logLines.join("")).not.toContain("secret prompt");
});
