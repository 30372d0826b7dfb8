import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { systemClock } from "../../src/lib/clock.ts";
import { askModelList } from "../../src/providers/catalogue/ask-model-list.ts";
import { type ChatEvent, ProviderFailure } from "../../src/providers/interface.ts";
import { createOllamaProvider } from "../../src/providers/ollama/ollama-provider.ts";
import { createHttpClient } from "../../src/providers/transport/http-client.ts";
import { inPieces } from "../support/anthropic-upstream.ts";
import { eventsIn, typedOf } from "../support/chat-answers.ts";
import { callOf } from "./openai-adapter.ts";

/** Ollama's own wire, between its adapter and a server that answers in its name. There is no recording of it. */

type Fields = Record<string, unknown>;

const KEY = "key-of-the-ollama-tests-0123456789";
let listed: string[] = [];
let asked: { path: string; authorization: string | null; body: Fields } | undefined;
let answer: () => Response;
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const { pathname: path } = new URL(request.url);
    if (request.method === "GET") {
      listed.push(path);
      if (!path.endsWith("/v1/models")) return new Response(null, { status: 404 });
      return Response.json({ object: "list", data: [{ id: "qwen3:8b", object: "model" }] });
    }
    const authorization = request.headers.get("authorization");
    asked = { path, authorization, body: (await request.json()) as Fields };
    return answer();
  },
});
afterAll(() => server.stop(true));
beforeEach(() => {
  asked = undefined;
  listed = [];
  answer = () => Response.json(whole({ content: "hi" }));
});

const ofUrl = (baseUrl: string) =>
  createOllamaProvider(
    { id: "ollama", type: "ollama", baseUrl, apiKey: KEY, connectTimeoutMs: 1_000 },
    { clock: systemClock, httpClient: createHttpClient({ clock: systemClock }) },
  );
const ORIGIN = `http://127.0.0.1:${server.port}`;
const provider = ofUrl(`${ORIGIN}/v1`);

const embedCallOf = (inputs: readonly (string | number[])[]) => ({
  model: "nomic",
  requestId: "req_1",
  signal: new AbortController().signal,
  inputs,
  fields: {},
});

const MESSAGES = [{ role: "user", content: "hello" }];
const COUNTS = { prompt_eval_count: 40, eval_count: 7 };
const whole = (message: Fields, more: Fields = {}) => ({
  model: "m",
  created_at: "2026-01-01T00:00:00Z",
  message: { role: "assistant", ...message },
  done: true,
  done_reason: "stop",
  ...COUNTS,
  ...more,
});
const piece = (message: Fields, more: Fields = {}) => ({
  model: "m",
  message: { role: "assistant", content: "", ...message },
  done: false,
  ...more,
});
const end = (more: Fields = {}) => ({ ...whole({ content: "" }), ...more });
const lines = (...objects: readonly unknown[]) =>
  objects.map((one) => `${JSON.stringify(one)}\n`).join("");

function streamed(text: string, length: number): Response {
  const { body } = inPieces(text, () => length);
  return new Response(body, { headers: { "content-type": "application/x-ndjson" } });
}

async function sent(fields: Fields): Promise<Fields> {
  await provider.chat!(callOf("qwen3:8b", { body: { messages: MESSAGES, ...fields } }));
  return asked!.body;
}

async function completion(fields: Fields = {}) {
  const said = await provider.chat!(callOf("m", { body: { messages: MESSAGES, ...fields } }));
  return typedOf(said);
}

async function events(text: string, length = 7): Promise<ChatEvent[]> {
  answer = () => streamed(text, length);
  const said = await provider.chat!(callOf("m", { stream: true, body: { messages: MESSAGES } }));
  return eventsIn(said);
}

const failure = (made: Promise<unknown>) =>
  made.then(
    () => undefined,
    (error: unknown) => (error instanceof ProviderFailure ? error : undefined),
  );

describe("a request", () => {
  test("goes to Ollama's own interface, beside that in OpenAI's form, with the key in a header", async () => {
    expect(await sent({ max_tokens: 50 })).toEqual({
      model: "qwen3:8b",
      messages: MESSAGES,
      stream: false,
      // Else Ollama leaves out the beginning of a prompt that is too long.
      truncate: false,
      options: { num_predict: 50 },
    });
    expect(asked).toMatchObject({ path: "/api/chat", authorization: `Bearer ${KEY}` });
  });

  test.each([
    ["", ""],
    ["/", ""],
    ["/v1", ""],
    ["/v1/", ""],
    ["/behind/proxy", "/behind/proxy"],
    ["/behind/proxy/v1", "/behind/proxy"],
    ["/v1?of=a", ""],
  ])("of an address that ends in %p finds calls, models and health", async (path, server) => {
    const baseUrl = `${ORIGIN}${path}`;
    const at = ofUrl(baseUrl);
    await at.chat!(callOf("m", { body: { messages: MESSAGES } }));
    expect(asked!.path).toBe(`${server}/api/chat`);
    answer = () => Response.json({ embeddings: [[1]] });
    await at.embed!(embedCallOf(["a"]));
    expect(asked!.path).toBe(`${server}/api/embed`);
    await at.checkKey!();
    expect(listed).toEqual([`${server}/v1/models`]);
    const client = createHttpClient({ clock: systemClock });
    const models = await askModelList(client, { id: "ollama", type: "ollama", baseUrl });
    expect(listed[1]).toBe(`${server}/v1/models`);
    expect(models).toMatchObject([{ name: "qwen3:8b" }]);
  });

  test("brings the context, how long the model stays, and sampling", async () => {
    const body = await sent({
      temperature: 0.5,
      top_k: 40,
      min_p: 0.1,
      repetition_penalty: 1.1,
      seed: 7,
      stop: ["END"],
      num_ctx: 32_768,
      keep_alive: "30m",
      options: { num_ctx: 1, num_gpu: 20 },
    });
    expect(body).toMatchObject({ keep_alive: "30m" });
    expect(body.options).toEqual({
      temperature: 0.5,
      top_k: 40,
      min_p: 0.1,
      repeat_penalty: 1.1,
      seed: 7,
      stop: ["END"],
      num_ctx: 32_768,
      num_gpu: 20,
    });
    const refused = await failure(sent({ options: { num_predict: 1_000_000 } }));
    expect(refused).toMatchObject({ kind: "rejected", param: "options.num_predict" });
  });

  test("brings tools, schemas and levels of thinking", async () => {
    const look = { type: "function", function: { name: "look", parameters: { type: "object" } } };
    const hear = { type: "function", function: { name: "hear" } };
    const tools = [look, hear];
    expect((await sent({ tools })).tools).toEqual([
      look,
      {
        type: "function",
        function: { name: "hear", parameters: { type: "object", properties: {} } },
      },
    ]);
    expect((await sent({ tools, tool_choice: "none" })).tools).toBeUndefined();
    const allowed_tools = { mode: "auto", tools: [look] };
    const some = await sent({ tools, tool_choice: { type: "allowed_tools", allowed_tools } });
    expect(some.tools).toEqual([look]);
    const schema = { type: "object", properties: {} };
    const json = { type: "json_schema", json_schema: { name: "n", schema } };
    expect((await sent({ response_format: json })).format).toEqual(schema);
    expect((await sent({ response_format: { type: "json_object" } })).format).toBe("json");
    const THINKS: readonly [Fields, unknown][] = [
      [{ reasoning_effort: "minimal" }, "low"],
      [{ reasoning: { effort: "xhigh" } }, "max"],
      [{ reasoning: { enabled: true } }, true],
      [{ reasoning: { enabled: false } }, false],
      [{ reasoning_effort: "none" }, false],
      [{ think: "high" }, "high"],
      [{}, undefined],
    ];
    for (const [fields, think] of THINKS) expect((await sent(fields)).think).toEqual(think);
  });

  test("brings a conversation with media, calls and their results", async () => {
    const image = { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } };
    const sound = { type: "input_audio", input_audio: { data: "BBBB", format: "wav" } };
    const file = { type: "file", file: { file_data: "data:text/plain,gr%C3%BC%C3%9Fe" } };
    const call = (id: string, text: string) => ({
      id,
      type: "function",
      function: { name: "look", arguments: text },
    });
    const body = await sent({
      messages: [
        { role: "developer", content: "Be brief." },
        { role: "user", content: [{ type: "text", text: "What is it?" }, image, sound, file] },
        {
          role: "assistant",
          content: null,
          reasoning: "Hm.",
          tool_calls: [call("a", '{"at":"sky"}'), call("b", "sky")],
        },
        { role: "tool", tool_call_id: "a", content: [{ type: "text", text: "blue" }] },
        { role: "tool", tool_call_id: "b", content: "green" },
      ],
    });
    expect(body.messages).toEqual([
      { role: "system", content: "Be brief." },
      { role: "user", content: "What is it?\ngrüße", images: ["AAAA", "BBBB"] },
      {
        role: "assistant",
        content: "",
        thinking: "Hm.",
        tool_calls: [
          { id: "a", function: { index: 0, name: "look", arguments: { at: "sky" } } },
          { id: "b", function: { index: 1, name: "look", arguments: { arguments: "sky" } } },
        ],
      },
      { role: "tool", content: "blue", tool_call_id: "a", tool_name: "look" },
      { role: "tool", content: "green", tool_call_id: "b", tool_name: "look" },
    ]);
  });

  test.each([
    [{ type: "image_url", image_url: { url: "https://a.test/a.png" } }, "messages.0.content.0"],
    [
      { type: "file", file: { file_data: "data:application/pdf;base64,AA" } },
      "messages.0.content.0",
    ],
    [{ type: "hologram" }, "messages.0.content.0.type"],
  ])("with a part that Ollama does not take names it: %j", async (part, param) => {
    const refused = await failure(sent({ messages: [{ role: "user", content: [part] }] }));
    expect(refused).toMatchObject({ kind: "rejected", param });
    expect(asked).toBeUndefined();
  });

  test("is known to lack what Ollama passes over in silence", () => {
    const { unsupported: missing, takesPart } = provider.fields!;
    const model = { model: "m", modelId: "ollama/m" };
    const lacks = (field: string, value: unknown) => missing(field, value, model, true, {});
    for (const [field, value] of [
      ["tool_choice", "required"],
      ["tool_choice", { type: "function", function: { name: "look" } }],
      ["parallel_tool_calls", false],
      ["n", 2],
      ["logit_bias", { 1: 1 }],
      ["user", "u"],
      ["unheard_of", 1],
      ["options", 5],
    ] as const) {
      expect([field, lacks(field, value)]).toEqual([field, [field]]);
    }
    for (const [field, value] of [
      ["tool_choice", "none"],
      ["tool_choice", "auto"],
      ["top_k", 5],
      ["num_ctx", 1],
      ["keep_alive", 0],
      ["logprobs", true],
    ] as const) {
      expect([field, lacks(field, value)]).toEqual([field, []]);
    }
    expect(lacks("reasoning", { effort: "low", max_tokens: 5 })).toEqual(["reasoning.max_tokens"]);
    expect([takesPart("image", model), takesPart("video", model)]).toEqual([true, false]);
  });
});

describe("an answer", () => {
  test("brings thinking, text, calls, tokens and log probabilities", async () => {
    const token = { token: "h", logprob: -0.5, bytes: [104] };
    answer = () =>
      Response.json(
        whole(
          {
            content: "hi",
            thinking: "Hm.",
            tool_calls: [
              { id: "call_1", function: { index: 0, name: "look", arguments: { at: "sky" } } },
              { function: { name: "hear" } },
            ],
          },
          { logprobs: [{ ...token, top_logprobs: [token] }] },
        ),
      );
    const { choices, usage } = await completion({ logprobs: true, top_logprobs: 1 });
    expect(asked!.body).toMatchObject({ logprobs: true, top_logprobs: 1 });
    expect(choices).toEqual([
      {
        text: "hi",
        reasoning: "Hm.",
        logprobs: { content: [{ ...token, top_logprobs: [token] }], refusal: null },
        toolCalls: [
          { id: "call_1", name: "look", arguments: '{"at":"sky"}' },
          { id: expect.stringMatching(/^call_.+_1$/), name: "hear", arguments: "{}" },
        ],
        finish: "tool_calls",
      },
    ] as never);
    expect(usage).toMatchObject({ promptTokens: 40, completionTokens: 7, estimated: false });
  });

  test.each([
    ["stop", "stop"],
    ["length", "length"],
    ["load", "stop"],
    [undefined, "stop"],
  ])("that ended with %p ends with %s", async (done_reason, finish) => {
    answer = () => Response.json(whole({ content: "" }, { done_reason }));
    expect((await completion()).choices[0]).toMatchObject({ text: "", finish });
    expect((await events(lines(end({ done_reason })))).at(-1)).toEqual({
      type: "finish",
      choice: 0,
      reason: finish as "stop",
    });
  });

  test.each([
    ["none", {}],
    ["a prompt of nothing", { prompt_eval_count: 0, eval_count: 5 }],
    ["negative", { prompt_eval_count: 5, eval_count: -5 }],
    ["fractional", { prompt_eval_count: 1.5, eval_count: 5 }],
    ["enormous", { prompt_eval_count: 5, eval_count: 1e300 }],
  ])("whose tokens cannot be true has none: %s", async (_name, counts) => {
    const { prompt_eval_count: _, eval_count: __, ...rest } = whole({ content: "hi" });
    answer = () => Response.json({ ...rest, ...counts });
    expect((await completion()).usage).toBeUndefined();
  });
});

describe("a stream", () => {
  test.each([1, 7, 4_000])("comes whole, in pieces of %d bytes", async (length) => {
    const text = lines(
      piece({ thinking: "Hm" }),
      piece({ thinking: "…" }),
      piece({ content: "grü" }),
      piece({ content: "ße 👋" }),
      piece({ tool_calls: [{ id: "c", function: { name: "look", arguments: { at: "sky" } } }] }),
      { type: "unheard of" },
      end(),
    );
    const read = await events(text + lines(piece({ content: "late" })), length);
    expect(read).toEqual([
      { type: "reasoning", choice: 0, text: "Hm" },
      { type: "reasoning", choice: 0, text: "…" },
      { type: "text", choice: 0, text: "grü" },
      { type: "text", choice: 0, text: "ße 👋" },
      { type: "tool_call", choice: 0, index: 0, id: "c", name: "look", arguments: '{"at":"sky"}' },
      expect.objectContaining({ type: "usage" }),
      { type: "finish", choice: 0, reason: "tool_calls" },
    ]);
  });

  test("whose last line lacks its end is read", async () => {
    const read = await events(lines(piece({ content: "hi" }), end()).trimEnd());
    expect(read.at(-1)!.type).toBe("finish");
  });

  const half = piece({ content: "half" });
  test.each([
    ["what is no JSON", `${lines(half)}{oh\n`, "unavailable"],
    ["a line that is cut off", `${lines(half)}{"message": {"con`, "unavailable"],
    ["what is no object", `${lines(half)}5\n`, "unavailable"],
    ["a call without a name", lines(half, piece({ tool_calls: [{}] })), "unavailable"],
    ["an error", lines(half, { error: "runner stopped" }), "unavailable"],
    ["an error with a status", lines(half, { error: "slow down", status: 429 }), "rate_limited"],
  ])("with %s ends in an error behind what came", async (_name, text, kind) => {
    for (const length of [1, 4_000]) {
      const read = await events(text, length);
      expect(read[0]).toEqual({ type: "text", choice: 0, text: "half" });
      const last = read.at(-1)!;
      if (last.type !== "error") throw new Error(last.type);
      expect(last.failure.kind).toBe(kind as "unavailable");
    }
  });

  test("without its end lacks its finish, which the relay takes for an error", async () => {
    expect(await events(lines(half))).toEqual([{ type: "text", choice: 0, text: "half" }]);
  });

  test("may come as a whole answer, and as nothing that is one", async () => {
    const ask = () => provider.chat!(callOf("m", { stream: true, body: { messages: MESSAGES } }));
    expect((await ask()).kind).toBe("stream");
    answer = () => Response.json({ error: "no" });
    expect(await failure(ask())).toMatchObject({ kind: "unavailable" });
    answer = () => new Response("<html>", { headers: { "content-type": "text/html" } });
    expect(await failure(ask())).toMatchObject({ kind: "unavailable" });
  });
});

test.each([
  [400, "the input length exceeds the context length", "rejected", true],
  [500, "the prompt is longer than the context length currently available", "rejected", true],
  [400, '"m" does not support thinking', "rejected", false],
  [401, "unauthorized", "misconfigured", false],
  [404, "model 'm' not found", "misconfigured", false],
  [429, "too many requests", "rate_limited", false],
  [503, "server busy", "unavailable", false],
])("status %d with %p is of kind %s", async (status, error, kind, isTooLong) => {
  answer = () => Response.json({ error: `${error} ${KEY}` }, { status });
  const failed = await failure(completion());
  expect(failed).toMatchObject({ kind, isTooLong, status } as object);
  expect(failed!.message).toContain(error);
  expect(failed!.message).not.toContain(KEY);
});

test("no answer under a status of success is a failure", async () => {
  for (const body of ["<html>", "[]", "{}", '{"message": 5}', "null"]) {
    answer = () => new Response(body, { headers: { "content-type": "application/json" } });
    expect(await failure(completion())).toMatchObject({ kind: "unavailable" });
  }
});

describe("embeddings", () => {
  const embed = (inputs: readonly (string | number[])[], more: object = {}) =>
    provider.embed!({ ...embedCallOf(inputs), ...more });

  test("of texts come in their order, and too long texts are not cut", async () => {
    answer = () =>
      Response.json({
        embeddings: [
          [1, 2],
          [0.5, -1],
        ],
        prompt_eval_count: 9,
      });
    const { vectors, usage } = await embed(["a", "b"], {
      dimensions: 2,
      fields: { keep_alive: "5m", encoding_format: "base64" },
    });
    expect(asked).toMatchObject({
      path: "/api/embed",
      body: { model: "nomic", input: ["a", "b"], truncate: false, dimensions: 2, keep_alive: "5m" },
    });
    expect(vectors.map((one) => [...Array.from(one)])).toEqual([
      [1, 2],
      [0.5, -1],
    ]);
    expect(usage).toMatchObject({ promptTokens: 9, completionTokens: 0 });
  });

  test("of lists of tokens are refused, and garbage is a failure", async () => {
    expect(await failure(embed([[1, 2]]))).toMatchObject({ kind: "rejected", param: "input" });
    for (const body of [{}, { embeddings: [[1]] }, { embeddings: [[1], []] }, { error: "no" }]) {
      answer = () => Response.json(body);
      expect(await failure(embed(["a", "b"]))).toMatchObject({ kind: "unavailable" });
    }
  });
});
