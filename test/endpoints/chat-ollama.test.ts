import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { inPieces } from "../support/anthropic-upstream.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, readStream } from "../support/stream-reader.ts";

/** Ollama's own wire through the whole gateway; test/providers/ollama.test.ts has what it says in detail. */

type Fields = Record<string, unknown>;

let answer: (body: Fields) => Response;
let asked: Fields;
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    asked = (await request.json()) as Fields;
    return answer(asked);
  },
});

const MODEL = "local/qwen3";
let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({
    configuration: {
      providers: [{ id: "box", type: "ollama", base_url: `http://127.0.0.1:${server.port}/v1` }],
      // At a private address it costs nothing.
      models: [{ id: MODEL, endpoints: [{ provider: "box", model: "qwen3:8b" }] }],
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await server.stop(true);
});
afterEach(() => expectBooksClosed(gateway));

const chat = (body: Fields = {}) =>
  gateway.request("POST", "/v1/chat/completions", {
    model: MODEL,
    messages: [{ role: "user", content: "hello" }],
    ...body,
  });
const said = (message: Fields, more: Fields = {}) => ({ message, done: false, ...more });
const END = { done: true, done_reason: "stop", prompt_eval_count: 40, eval_count: 7 };
const lines = (...objects: readonly Fields[]) =>
  objects.map((one) => `${JSON.stringify(one)}\n`).join("");

function streamed(text: string): Response {
  const { body } = inPieces(text, () => 9);
  return new Response(body, { headers: { "content-type": "application/x-ndjson" } });
}

test("a stream comes in the client's form, and costs nothing", async () => {
  answer = () =>
    streamed(
      lines(
        said({ thinking: "Hm." }),
        said({ content: "grü" }),
        said({ content: "ße" }),
        said({ tool_calls: [{ function: { name: "look", arguments: { at: "sky" } } }] }),
        { ...said({ content: "" }), ...END },
      ),
    );
  const response = await chat({ stream: true, stream_options: { include_usage: true } });
  const read = await readStream(response);
  expectStreamShape(read, { model: MODEL, includesUsage: true });
  expect(read).toMatchObject({
    reasoning: "Hm.",
    content: "grüße",
    finishReason: "tool_calls",
    toolCalls: [{ index: 0, name: "look", arguments: '{"at":"sky"}' }],
    usage: { prompt_tokens: 40, completion_tokens: 7, cost: 0 },
  });
  expect(await billOfResponse(gateway, response)).toMatchObject({
    chargeNano: 0n,
    estimated: false,
  });
});

test("an error in mid-stream is sent in the stream, and one without its end is one", async () => {
  for (const rest of [[{ error: "runner stopped" }], []]) {
    answer = () => streamed(lines(said({ content: "half" }), ...rest));
    const read = await readStream(await chat({ stream: true }));
    expect(read).toMatchObject({ content: "half", isDone: false });
    expect(read.error!.error.code).toBe("provider_error");
  }
});

test("a prompt beyond the server's context is 400, and is not cut", async () => {
  answer = ({ truncate }) => {
    expect(truncate).toBeFalse();
    return Response.json({ error: "the input length exceeds the context length" }, { status: 400 });
  };
  const response = await chat();
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ error: { code: "context_length_exceeded" } });
});

test.each([0, 300_000])(
  "Ollama's own fields reach it, and what it would ignore is listed or refused (%d characters more)",
  async (padding) => {
    answer = () => Response.json({ ...said({ content: "hi" }), ...END });
    const response = await chat({
      messages: [{ role: "user", content: "x".repeat(padding) || "hello" }],
      num_ctx: 65_536,
      keep_alive: "1h",
      options: { num_gpu: 9 },
      user: "u",
      unheard_of: 1,
    });
    expect(response.status).toBe(200);
    expect(asked).toMatchObject({ keep_alive: "1h", options: { num_ctx: 65_536, num_gpu: 9 } });
    expect(asked.unheard_of).toBeUndefined();
    expect(response.headers.get("x-gateway-dropped-parameters")).toBe("user, unheard_of");
    const tools = [{ type: "function", function: { name: "look" } }];
    const refused = await chat({ tools, tool_choice: "required" });
    expect(await refused.json()).toMatchObject({
      error: { code: "unsupported_parameter", param: "tool_choice" },
    });
  },
);
