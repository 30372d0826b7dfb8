import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { chargeNano, MAX_OUTPUT_TOKENS, PRICES } from "../support/chat-gateway.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { messagesWire } from "../support/messages-wire.ts";
import { expectStreamShape, readStream } from "../support/stream-reader.ts";

/** A provider of a wire that is not OpenAI's, through the whole gateway. */

type Scripted = (request: Record<string, unknown>, headers: Headers) => Response;

let script: Scripted;
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  fetch: async (request) =>
    script((await request.json()) as Record<string, unknown>, request.headers),
});

let gateway: TestGateway;
let slug = 0;
beforeAll(async () => {
  const usd = (femto: bigint) => Number(femto) / 1e15;
  const model = (name: string) => ({
    id: `test/${name}`,
    category: "chat",
    context_length: 128_000,
    max_output_tokens: MAX_OUTPUT_TOKENS,
    input_cost_per_token: usd(PRICES.inputFemto),
    output_cost_per_token: usd(PRICES.outputFemto),
    cached_input_cost_per_token: usd(PRICES.cachedFemto),
    capabilities: ["streaming", "function_calling"],
    endpoints: [{ provider: "second", model: name }],
  });
  gateway = await startTestGateway({
    wires: { hyperbolic: messagesWire },
    configuration: {
      providers: [
        {
          id: "second",
          type: "hyperbolic",
          base_url: `http://127.0.0.1:${server.port}/v1`,
          api_key: "key-of-the-second-wire",
        },
      ],
      models: Array.from({ length: 16 }, (_, at) => model(`m-${at}`)),
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
});

const model = () => `test/m-${slug}`;

function chat(body: Record<string, unknown> = {}) {
  const messages = [
    { role: "system", content: "Be brief." },
    { role: "user", content: "hello" },
  ];
  return gateway.request("POST", "/v1/chat/completions", { model: model(), messages, ...body });
}

function events(...all: { type: string; [field: string]: unknown }[]): Response {
  const frames = all.map((one) => `event: ${one.type}\ndata: ${JSON.stringify(one)}\n\n`);
  const bytes = new TextEncoder().encode(frames.join(""));
  return new Response(
    new ReadableStream({
      // In pieces that end anywhere.
      async start(controller) {
        for (let at = 0; at < bytes.length; at += 97) {
          controller.enqueue(bytes.slice(at, at + 97));
          await Bun.sleep(0);
        }
        controller.close();
      },
    }),
    { headers: { "content-type": "text/event-stream" } },
  );
}

const start = (usage?: object) => ({ type: "message_start", message: { usage } });
const delta = (index: number, piece: object) => ({
  type: "content_block_delta",
  index,
  delta: piece,
});
const text = (said: string) => delta(0, { type: "text_delta", text: said });
const end = (stop_reason: string, output_tokens?: number) => [
  {
    type: "message_delta",
    delta: { stop_reason },
    ...(output_tokens !== undefined && { usage: { output_tokens } }),
  },
  { type: "message_stop" },
];
const PROMPT = { input_tokens: 40, cache_read_input_tokens: 60, output_tokens: 1 };

test("a whole answer comes in the client's form, and its charge is exact to the nano-USD", async () => {
  let asked: Record<string, unknown> = {};
  let key: string | null = null;
  script = (request, headers) => {
    asked = request;
    key = headers.get("x-api-key");
    return Response.json({
      content: [
        { type: "thinking", thinking: "hm", signature: "c2ln" },
        { type: "text", text: "Grüße 👋" },
        { type: "tool_use", id: "toolu_1", name: "look", input: { at: "the sky" } },
      ],
      stop_reason: "tool_use",
      usage: { ...PROMPT, output_tokens: 25 },
    });
  };
  const response = await chat({ max_tokens: 77 });
  expect(response.status).toBe(200);
  expect(asked).toMatchObject({ model: `m-${slug}`, max_tokens: 77, system: "Be brief." });
  expect(key!).toBe("key-of-the-second-wire");
  const body = (await response.json()) as Record<string, unknown>;
  expect(body).toMatchObject({
    id: expect.stringMatching(/^chatcmpl-[0-9a-f]{32}$/),
    object: "chat.completion",
    model: model(),
    choices: [
      {
        index: 0,
        finish_reason: "tool_calls",
        logprobs: null,
        message: {
          role: "assistant",
          content: "Grüße 👋",
          reasoning: "hm",
          reasoning_details: [{ type: "reasoning.text", text: "hm", signature: "c2ln", index: 0 }],
          refusal: null,
          tool_calls: [
            {
              id: "toolu_1",
              type: "function",
              function: { name: "look", arguments: '{"at":"the sky"}' },
            },
          ],
        },
      },
    ],
    usage: { prompt_tokens: 100, completion_tokens: 25, total_tokens: 125 },
  });
  expect(body.created).toBeInteger();
  const bill = await billOfResponse(gateway, response);
  const charge = chargeNano({ prompt: 100, cached: 60, completion: 25 });
  expect(bill).toMatchObject({ chargeNano: charge, cachedPromptTokens: 60, estimated: false });
  expect((body.usage as { cost: number }).cost).toBe(Number(charge) / 1e9);
});

test("a whole answer without usage is charged by what was counted of it", async () => {
  script = () =>
    Response.json({ content: [{ type: "text", text: "eight by" }], stop_reason: "end_turn" });
  const response = await chat();
  expect(await response.json()).toMatchObject({ choices: [{ finish_reason: "stop" }] });
  const bill = await billOfResponse(gateway, response);
  expect(bill.estimated).toBeTrue();
  expect(bill.completionTokens).toBePositive();
});

test("a stream comes as chunks: reasoning, text, tool calls in pieces, usage, [DONE], an exact charge", async () => {
  script = () =>
    events(
      start(PROMPT),
      { type: "ping" },
      delta(0, { type: "thinking_delta", thinking: "hm" }),
      delta(0, { type: "signature_delta", signature: "c2ln" }),
      text("Grüße "),
      text('"👋"\n'),
      {
        type: "content_block_start",
        index: 2,
        content_block: { type: "tool_use", id: "toolu_1", name: "look" },
      },
      delta(2, { type: "input_json_delta", partial_json: '{"at":"t' }),
      delta(2, { type: "input_json_delta", partial_json: 'he sky"}' }),
      {
        type: "content_block_start",
        index: 3,
        content_block: { type: "tool_use", id: "toolu_2", name: "stop" },
      },
      ...end("tool_use", 31),
    );
  const response = await chat({ stream: true, stream_options: { include_usage: true } });
  expect(response.status).toBe(200);
  const read = await readStream(response);
  expectStreamShape(read, { model: model(), includesUsage: true });
  expect(read.text).toContain(
    '"delta":{"reasoning_details":[{"type":"reasoning.text","signature":"c2ln","index":0}]}',
  );
  expect(read).toMatchObject({
    content: 'Grüße "👋"\n',
    reasoning: "hm",
    finishReason: "tool_calls",
    toolCalls: [
      { index: 0, id: "toolu_1", name: "look", arguments: '{"at":"the sky"}' },
      // Nothing at all is no JSON.
      { index: 1, id: "toolu_2", name: "stop", arguments: "{}" },
    ],
    usage: { prompt_tokens: 100, completion_tokens: 31 },
  });
  const bill = await billOfResponse(gateway, response);
  expect(bill).toMatchObject({
    chargeNano: chargeNano({ prompt: 100, cached: 60, completion: 31 }),
    estimated: false,
  });
});

test("reasoning that is not wanted is charged, and not sent", async () => {
  script = () =>
    events(
      start(PROMPT),
      delta(0, { type: "thinking_delta", thinking: "secret" }),
      delta(0, { type: "signature_delta", signature: "secret" }),
      text("said"),
      ...end("end_turn", 9),
    );
  const response = await chat({ stream: true, include_reasoning: false });
  const read = await readStream(response);
  expectStreamShape(read, { model: model(), includesUsage: false });
  expect(read.content).toBe("said");
  expect(read.text).not.toContain("secret");
  expect((await billOfResponse(gateway, response)).completionTokens).toBe(9);
});

test("where no limit is stated, the model's own is sent to a wire that demands one", async () => {
  let asked: Record<string, unknown> = {};
  script = (request) => {
    asked = request;
    return Response.json({ content: [{ type: "text", text: "hi" }], stop_reason: "end_turn" });
  };
  expect((await chat()).status).toBe(200);
  expect(asked.max_tokens).toBe(MAX_OUTPUT_TOKENS);
});

test("an hour in the cache is refused where the model has no price for it", async () => {
  const cache_control = { type: "ephemeral", ttl: "1h" };
  const response = await chat({ cache_control });
  expect(response.status).toBe(400);
  const { error } = (await response.json()) as { error: Record<string, unknown> };
  expect(error).toMatchObject({ code: "unsupported_parameter", param: "cache_control.ttl" });
});

test("an error in mid-stream is sent in the stream, and the usage that came with it is charged", async () => {
  script = () =>
    events(start(PROMPT), text("half of "), {
      type: "error",
      error: { type: "overloaded_error", message: "Overloaded" },
      usage: { output_tokens: 3 },
    });
  const response = await chat({ stream: true });
  expect(response.status).toBe(200);
  const read = await readStream(response);
  expect(read).toMatchObject({ content: "half of ", isDone: false });
  expect(read.error!.error).toMatchObject({ code: "provider_error" });
  expect((await billOfResponse(gateway, response)).chargeNano).toBe(
    chargeNano({ prompt: 100, cached: 60, completion: 3 }),
  );
});

test("a stream that ends without a reason is an error, and what came is charged", async () => {
  script = () => events(start(PROMPT), text("half of "));
  const response = await chat({ stream: true });
  const read = await readStream(response);
  expect(read.isDone).toBeFalse();
  expect(read.error!.error).toMatchObject({ code: "provider_error" });
  const bill = await billOfResponse(gateway, response);
  // The prompt as it was reported, the answer as it was counted.
  expect(bill).toMatchObject({ promptTokens: 100, estimated: true });
  expect(bill.completionTokens).toBeGreaterThan(1);
});

test.each([false, true])(
  "a refusal before the answer has its status (stream %s)",
  async (stream) => {
    const error = { type: "invalid_request_error", message: "messages: too odd" };
    script = () => Response.json({ type: "error", error }, { status: 400 });
    const response = await chat({ stream });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { message: "messages: too odd" } });
  },
);

/** Long enough to lie in a work thread: white space behind it, or its text. */
const LONG = 300_000;

test.each([false, true])(
  "a long body reaches the provider whole, rendered in the work thread (stream %s)",
  async (stream) => {
    const content = "é".repeat(LONG);
    let asked: Record<string, unknown> = {};
    script = (request) => {
      asked = request;
      return stream
        ? events(start(PROMPT), text("read"), ...end("end_turn", 3))
        : Response.json({
            content: [{ type: "text", text: "read" }],
            stop_reason: "end_turn",
            usage: { ...PROMPT, output_tokens: 3 },
          });
    };
    const messages = [
      { role: "system", content: "Be brief." },
      { role: "user", content },
    ];
    const response = await chat({ messages, stream, max_tokens: 7 });
    expect(response.status).toBe(200);
    expect(await response.text()).toContain("read");
    expect(asked).toEqual({
      model: `m-${slug}`,
      stream,
      max_tokens: 7,
      system: "Be brief.",
      messages: [{ role: "user", content }],
    });
  },
);

test("what a wire cannot send is refused alike for short and long bodies", async () => {
  const refusals: unknown[] = [];
  for (const content of ["short", "x".repeat(LONG)]) {
    const response = await chat({ messages: [{ role: "developer", content }] });
    expect(response.status).toBe(400);
    refusals.push(((await response.json()) as { error: Record<string, unknown> }).error);
  }
  const [short, long] = refusals as { request_id?: string }[];
  expect(short).toMatchObject({
    message: "There are no developers here.",
    param: "messages.0.role",
  });
  expect({ ...long, request_id: "" }).toEqual({ ...short, request_id: "" });
});

test("nothing stays held, and the books agree", () => expectBooksClosed(gateway));
