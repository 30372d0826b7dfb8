import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import {
  framed,
  messageOfStream,
  STREAMS,
  streamText,
  WHOLE,
  wholeMessage,
} from "../support/anthropic-recordings.ts";
import {
  ADAPTIVE,
  type AnthropicGateway,
  inPieces,
  startAnthropicGateway,
  UPSTREAM_KEY,
} from "../support/anthropic-upstream.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { messageEvents } from "../support/message-events.ts";
import { until } from "../support/until.ts";
import { randomPieceLength, seededRandom } from "../upstream/random.ts";

type Fields = Record<string, unknown>;

let anthropic: AnthropicGateway;
beforeAll(async () => {
  anthropic = await startAnthropicGateway();
});
afterAll(() => anthropic.stop());
afterEach(() => expectBooksClosed(anthropic.gateway));

const PROMPT = { messages: [{ role: "user", content: "hello" }] };
const send = (body: Fields = {}, init?: RequestInit & { key?: string }) =>
  anthropic.gateway.request(
    "POST",
    "/v1/messages?beta=true",
    { model: ADAPTIVE, max_tokens: 20_000, ...PROMPT, ...body },
    init,
  );
const MESSAGE = {
  id: "msg_of_anthropic",
  type: "message",
  role: "assistant",
  model: "claude-opus-5-20260601",
  content: [{ type: "text", text: "hi" }],
  stop_reason: "end_turn",
  stop_sequence: null,
  usage: { input_tokens: 40, output_tokens: 7 },
};

/** What the same answer is billed as to a client of chat completions. */
async function billByChat(stream: boolean, maxTokens = 20_000) {
  const response = await anthropic.chat({
    model: ADAPTIVE,
    max_tokens: maxTokens,
    stream,
    ...PROMPT,
  });
  await response.text();
  const { chargeNano, promptTokens, completionTokens, cachedPromptTokens, quantities } =
    await billOfResponse(anthropic.gateway, response);
  return { chargeNano, promptTokens, completionTokens, cachedPromptTokens, quantities };
}

describe("answers of Anthropic's models pass as they came", () => {
  test.each(STREAMS)("%s, cut at random offsets, and is billed as by chat", async (name) => {
    const text = streamText(name);
    const random = seededRandom(7);
    anthropic.answerWith(() => inPieces(text, () => randomPieceLength(random)));
    const response = await send({ stream: true });
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    const requestId = response.headers.get("request-id")!;
    const got = messageEvents(await response.text());
    const bill = await billOfResponse(anthropic.gateway, response);
    const sent = text
      .split("\n")
      .filter((line) => line.startsWith("data:"))
      .map((line) => JSON.parse(line.slice(5)) as Fields);
    const expected = sent.map((event) => {
      if (event.type === "message_start") {
        const id = `msg_${requestId.slice(4)}`;
        return { ...event, message: { ...(event.message as Fields), id, model: ADAPTIVE } };
      }
      if (event.type !== "message_delta") return event;
      return {
        ...event,
        usage: { ...(event.usage as Fields), cost: Number(bill.chargeNano) / 1e9 },
      };
    });
    expect(got).toEqual(expected);
    expect(bill).toMatchObject({ ...(await billByChat(true)), status: 200, estimated: false });
  });

  test.each([
    ...WHOLE.map((name) => [name, wholeMessage(name)] as const),
    ...STREAMS.slice(0, 3).map((name) => [name, messageOfStream(streamText(name))] as const),
  ])("%s, whole", async (_name, message) => {
    anthropic.answerWith(() => Response.json(message));
    const response = await send();
    expect(response.status).toBe(200);
    const answer = (await response.json()) as Fields;
    const bill = await billOfResponse(anthropic.gateway, response);
    const requestId = response.headers.get("request-id")!;
    expect(requestId).toBe(response.headers.get("x-gateway-request-id")!);
    expect(answer).toEqual({
      ...message,
      id: `msg_${requestId.slice(4)}`,
      model: ADAPTIVE,
      usage: { ...message.usage, cost: Number(bill.chargeNano) / 1e9 },
    });
    expect(bill).toMatchObject(await billByChat(false));
  });

  test("tokens read from the cache and written for an hour have their prices", async () => {
    const usage = {
      input_tokens: 10,
      cache_read_input_tokens: 1_000,
      cache_creation_input_tokens: 300,
      cache_creation: { ephemeral_5m_input_tokens: 100, ephemeral_1h_input_tokens: 200 },
      output_tokens: 7,
    };
    anthropic.answerWith(() => Response.json({ ...MESSAGE, usage }));
    const cache_control = { type: "ephemeral", ttl: "1h" };
    const content = [{ type: "text", text: "x".repeat(5_000), cache_control }];
    const response = await send({ messages: [{ role: "user", content }] });
    expect(((await response.json()) as { usage: Fields }).usage).toMatchObject(usage);
    // 10 × 5 + 1000 × 0.5 + 100 × 6.25 + 200 × 10 + 7 × 25 USD for a million
    expect(await billOfResponse(anthropic.gateway, response)).toMatchObject({
      chargeNano: 3_350_000n,
      quantities: { cache_write_tokens: 300, cache_write_1h_tokens: 200 },
    });
  });

  test.each([{}, null, { input_tokens: 40 }, { output_tokens: -1 }])(
    "and what was counted is charged where the end of a stream tells no tokens: %j",
    async (usage) => {
      const { content: _, ...message } = MESSAGE;
      const events = [
        { type: "message_start", message: { ...message, content: [], stop_reason: null } },
        { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
        {
          type: "content_block_delta",
          index: 0,
          delta: { type: "text_delta", text: "word ".repeat(200) },
        },
        { type: "content_block_stop", index: 0 },
        { type: "message_delta", delta: { stop_reason: "end_turn", stop_sequence: null }, usage },
        { type: "message_stop" },
      ];
      const text = events.map((one) => `event: ${one.type}\ndata: ${JSON.stringify(one)}\n\n`);
      anthropic.answerWith(() => inPieces(text.join(""), () => 10_000));
      const body = { model: ADAPTIVE, max_tokens: 20_000, stream: true, ...PROMPT };
      for (const response of [await send(body), await anthropic.chat(body)]) {
        await response.text();
        const bill = await billOfResponse(anthropic.gateway, response);
        expect(bill).toMatchObject({ status: 200, estimated: true, promptTokens: 40 });
        expect(bill.completionTokens).toBeGreaterThan(150);
      }
    },
  );
});

test("a call with the organization's own key is counted by its budget for all that passes", async () => {
  const { gateway } = anthropic;
  const { managementKey } = await gateway.addOrganization({ creditUsd: 0 });
  const post = async (path: string, body: Fields) => {
    const response = await gateway.request("POST", path, body, { key: managementKey });
    expect(response.status).toBe(201);
    return (await response.json()) as Fields;
  };
  await post("/v1/provider_keys", { provider: "anthropic", key: "sk-ant-own-0123456789abcdef" });
  const created = await post("/v1/keys", {
    name: "counted",
    budget_includes_byok: true,
    daily_budget_usd: 1,
  });
  const key = created.key as string;
  const usage = { input_tokens: 5_000, output_tokens: 1 };
  anthropic.answerWith(() => Response.json({ ...MESSAGE, usage }));
  // No other wire has this member, so that only what passes is as long.
  const response = await send({ max_tokens: 1, notes: "y".repeat(6_000) }, { key });
  expect(response.status).toBe(200);
  const itself = await gateway.request("GET", "/v1/key", undefined, { key });
  // 5000 × 5 + 1 × 25 USD for a million
  expect(await itself.json()).toMatchObject({ usage_today_usd: 0.025025 });
});

describe("requests pass as they came", () => {
  test("with the model's name at the provider, its key, and the client's version and betas", async () => {
    anthropic.answerWith(() => Response.json(MESSAGE));
    const body = {
      system: [{ type: "text", text: "Be.", cache_control: { type: "ephemeral" } }],
      messages: [
        { role: "user", content: [{ type: "text", text: "hello" }] },
        { role: "system", content: "Now." },
      ],
      thinking: { type: "adaptive" },
      output_config: { effort: "max" },
      context_management: { edits: [{ type: "clear_thinking_20251015", keep: "all" }] },
      metadata: { user_id: "u".repeat(300) },
      some_new_field: [1],
    };
    const response = await send(body, {
      headers: { "anthropic-version": "2023-06-01", "anthropic-beta": "effort-1, context-2" },
    });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-gateway-dropped-parameters")).toBeNull();
    const seen = anthropic.seen.at(-1)!;
    expect(seen.path).toBe("/v1/messages");
    expect(seen.body).toEqual({ ...body, model: "claude-opus-5", max_tokens: 20_000 });
    expect(seen.headers.get("anthropic-beta")).toBe("effort-1,context-2");
    expect(seen.headers.get("x-api-key")).toBe(UPSTREAM_KEY);
    expect((await billOfResponse(anthropic.gateway, response)).details).toEqual({
      user: "u".repeat(300),
      price_source: "built_in",
    });
  });

  test.each(["claude-opus-5", "anthropic/claude-opus-5"])("by the name %s", async (model) => {
    anthropic.answerWith(() => Response.json(MESSAGE));
    const response = await send({ model });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-gateway-model")).toBe(ADAPTIVE);
  });

  test("with the key in a header of its own", async () => {
    anthropic.answerWith(() => Response.json(MESSAGE));
    const { baseUrl, secretKey } = anthropic.gateway;
    const response = await fetch(`${baseUrl}/v1/messages`, {
      method: "POST",
      headers: { "x-api-key": secretKey, "content-type": "application/json" },
      body: JSON.stringify({ model: ADAPTIVE, max_tokens: 10, ...PROMPT }),
    });
    expect(response.status).toBe(200);
  });

  test("without tools that the provider would run, which are listed", async () => {
    anthropic.answerWith(() => Response.json(MESSAGE));
    const tools = [{ type: "web_search_20250305", name: "web_search" }];
    const response = await send({ tools, tool_choice: { type: "any" } });
    expect(response.headers.get("x-gateway-dropped-parameters")).toBe("tools.0");
    expect(anthropic.seen.at(-1)!.body).not.toContainAnyKeys(["tools", "tool_choice"]);
  });
});

describe("a body that is too long for the event loop", () => {
  const words = "The quick brown fox jumps over the lazy dog. ";
  const cache_control = { type: "ephemeral", ttl: "1h" };
  const content = [
    { type: "text", text: words.repeat(8_000), cache_control },
    { type: "text", text: 'é\n"' },
  ];
  const messages = [
    { role: "user", content },
    {
      role: "assistant",
      content: [{ type: "tool_use", id: "a", name: "x", input: { deep: [{}] } }],
    },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "a", content: "y" }] },
  ];

  test("passes as it came, with what is left out listed", async () => {
    anthropic.answerWith(() => Response.json(MESSAGE));
    const tools = [{ type: "web_search_20250305", name: "web_search" }];
    const response = await send({ messages, tools, metadata: { user_id: "u" } });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-gateway-dropped-parameters")).toBe("tools.0");
    expect(anthropic.seen.at(-1)!.body).toEqual({
      model: "claude-opus-5",
      max_tokens: 20_000,
      messages,
      metadata: { user_id: "u" },
    });
    const bill = await billOfResponse(anthropic.gateway, response);
    expect(bill).toMatchObject({ promptTokens: 40, details: { user: "u" } });
  });

  test("is translated for other models, and counted", async () => {
    const response = await send({ model: "sandbox/chat", messages, system: "Be.", foo: 1 });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-gateway-dropped-parameters")).toBe(
      "foo, cache_control, max_tokens",
    );
    const { usage } = (await response.json()) as {
      usage: { input_tokens: number; cache_read_input_tokens: number };
    };
    expect(usage.input_tokens + usage.cache_read_input_tokens).toBeGreaterThan(50_000);
    const counted = await anthropic.gateway.request("POST", "/v1/messages/count_tokens", {
      model: "sandbox/chat",
      messages,
    });
    const { input_tokens: tokens } = (await counted.json()) as { input_tokens: number };
    expect(tokens).toBeWithin(79_000, 82_000);
  });

  test("is refused as a short one is", async () => {
    const orphan = { type: "tool_result", tool_use_id: "b", content: words.repeat(8_000) };
    const response = await send({ messages: [{ role: "user", content: [orphan] }] });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      type: "error",
      error: { type: "invalid_request_error", param: "messages.0.content.0.tool_use_id" },
    });
  });
});

describe("an answer that is too long for the event loop", () => {
  const long = "é and more. ".repeat(40_000);

  test("passes whole", async () => {
    const content = [{ type: "text", text: long }];
    anthropic.answerWith(() => Response.json({ ...MESSAGE, content }));
    const response = await send();
    const requestId = response.headers.get("request-id")!;
    const bill = await billOfResponse(anthropic.gateway, response);
    expect(await response.json()).toEqual({
      ...MESSAGE,
      content,
      id: `msg_${requestId.slice(4)}`,
      model: ADAPTIVE,
      usage: expect.objectContaining({
        input_tokens: 40,
        output_tokens: 7,
        cost: Number(bill.chargeNano) / 1e9,
      }),
    });
  });
});

describe("a large limit", () => {
  test("is lowered to what the money covers, a small one is refused", async () => {
    anthropic.answerWith(() => Response.json(MESSAGE));
    // 0.15 USD: 6,000 tokens of the answer at most
    const { secretKey } = await anthropic.gateway.addOrganization({
      creditUsd: 0.15,
      plan: "pro",
    });
    const response = await send({ max_tokens: 32_000 }, { key: secretKey });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-gateway-max-tokens")).toBe("4096");
    expect(anthropic.seen.at(-1)!.body.max_tokens).toBe(4_096);
    const { secretKey: poorKey } = await anthropic.gateway.addOrganization({
      creditUsd: 0.01,
      plan: "pro",
    });
    const refused = await send({ max_tokens: 4_000 }, { key: poorKey });
    expect(refused.status).toBe(402);
    expect(await refused.json()).toMatchObject({
      type: "error",
      error: { type: "billing_error" },
      request_id: refused.headers.get("request-id"),
    });
  });
});

const start = {
  type: "message_start",
  message: { ...MESSAGE, content: [], usage: { input_tokens: 40, output_tokens: 1 } },
};
const text = (index: number, piece: string) => [
  { type: "content_block_start", index, content_block: { type: "text", text: "" } },
  { type: "content_block_delta", index, delta: { type: "text_delta", text: piece } },
];

describe("a stream that fails", () => {
  test("ends with an error event, and what came is charged", async () => {
    const error = { type: "error", error: { type: "overloaded_error", message: "Overloaded" } };
    anthropic.answerWith(() =>
      inPieces(framed([start, ...text(0, "some words"), error]), () => 50),
    );
    const response = await send({ stream: true });
    const events = messageEvents(await response.text());
    expect(events.at(-1)).toEqual({
      type: "error",
      error: {
        type: "overloaded_error",
        message: expect.any(String),
        param: null,
        code: "overloaded",
      },
      request_id: response.headers.get("request-id"),
    });
    expect(events.map(({ type }) => type)).not.toContain("message_stop");
    expect(await billOfResponse(anthropic.gateway, response)).toMatchObject({
      promptTokens: 40,
      estimated: true,
    });
  });

  test("ends with an error at a second beginning, and costs what it has reported", async () => {
    const told = { type: "message_delta", delta: {}, usage: { output_tokens: 300 } };
    anthropic.answerWith(() =>
      inPieces(framed([start, ...text(0, "some words"), told, start]), () => 50),
    );
    const response = await send({ stream: true });
    const types = messageEvents(await response.text()).map(({ type }) => type);
    expect(types.filter((type) => type === "message_start")).toHaveLength(1);
    expect(types.at(-1)).toBe("error");
    expect(await billOfResponse(anthropic.gateway, response)).toMatchObject({
      promptTokens: 40,
      completionTokens: 300,
    });
  });

  test("is charged for what came where the client leaves", async () => {
    const cut = framed([start, ...text(0, "some words")]);
    anthropic.answerWith(
      () =>
        new Response(
          new ReadableStream({
            start(controller) {
              controller.enqueue(new TextEncoder().encode(cut));
            },
          }),
          { headers: { "content-type": "text/event-stream" } },
        ),
    );
    const response = await send({ stream: true });
    const reader = response.body!.getReader();
    await reader.read();
    await reader.cancel();
    await until("the stream is charged", async () => {
      const [row] = await anthropic.gateway.sql`
        SELECT status FROM transactions
        WHERE request_id = ${response.headers.get("request-id")!} AND type = 'usage'`;
      return row?.status === 499;
    });
  });

  test.each([
    [529, "overloaded_error", 503, "overloaded_error"],
    [500, "api_error", 502, "api_error"],
    [400, "invalid_request_error", 400, "invalid_request_error"],
    [401, "authentication_error", 502, "api_error"],
  ] as const)("before it begins: %i of the provider", async (status, type, ours, ourType) => {
    const body = { type: "error", error: { type, message: "no." } };
    anthropic.answerWith(() => Response.json(body, { status }));
    const response = await send({ stream: true });
    expect(response.status).toBe(ours);
    expect(await response.json()).toMatchObject({
      type: "error",
      error: { type: ourType, message: expect.any(String) },
      request_id: response.headers.get("request-id"),
    });
  });
});

test.each([false, true])("details of a rejection are passed on (stream %p)", async (stream) => {
  const details = { error_code: "image_dimensions_too_large", key: UPSTREAM_KEY };
  const error = { type: "invalid_request_error", message: "too large", details };
  anthropic.answerWith(() => Response.json({ type: "error", error }, { status: 400 }));
  const response = await send({ stream });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({
    error: {
      message: "too large",
      details: { error_code: "image_dimensions_too_large", key: "[redacted]" },
    },
  });
});

describe("counting tokens", () => {
  const count = (body: Fields) =>
    anthropic.gateway.request("POST", "/v1/messages/count_tokens", { ...PROMPT, ...body });

  test("asks Anthropic for its own models, and costs nothing", async () => {
    anthropic.answerWith(() => Response.json({ input_tokens: 1_234 }));
    const system = "Be.";
    const response = await count({ model: ADAPTIVE, system });
    expect(await response.json()).toEqual({ input_tokens: 1_234 });
    const seen = anthropic.seen.at(-1)!;
    expect(seen.path).toBe("/v1/messages/count_tokens");
    expect(seen.body).toEqual({ model: "claude-opus-5", system, ...PROMPT });
    const [row] = await anthropic.gateway.sql`
      SELECT count(*)::int AS charges FROM transactions
      WHERE request_id = ${response.headers.get("request-id")!}`;
    expect(row!.charges).toBe(0);
  });

  test("estimates for other models", async () => {
    const words = "The quick brown fox jumps over the lazy dog. ".repeat(100);
    const response = await count({
      model: "sandbox/chat",
      messages: [{ role: "user", content: words }],
    });
    const { input_tokens: tokens } = (await response.json()) as { input_tokens: number };
    expect(tokens).toBeGreaterThan(950);
    expect(tokens).toBeLessThan(1_050);
  });

  test.each([404, 405, 501])(
    "estimates where the server has no such route (%i)",
    async (status) => {
      anthropic.answerWith(() => Response.json({ detail: "Not Found" }, { status }));
      const response = await count({ model: ADAPTIVE });
      expect(response.status).toBe(200);
      const { input_tokens: tokens } = (await response.json()) as { input_tokens: number };
      expect(tokens).toBeWithin(3, 50);
    },
  );

  test("passes on what Anthropic refuses", async () => {
    const body = { type: "error", error: { type: "invalid_request_error", message: "odd" } };
    anthropic.answerWith(() => Response.json(body, { status: 400 }));
    const response = await count({ model: ADAPTIVE });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { message: "odd" } });
  });
});
