import { describe, expect, test } from "bun:test";
import { chatFieldsOf } from "../../src/providers/chat-fields.ts";
import { type ChatEvent, ProviderFailure } from "../../src/providers/interface.ts";
import type { ProviderResponse } from "../../src/providers/transport/provider-response.ts";
import { eventsIn, typedOf } from "../support/chat-answers.ts";
import { responsesRecordings } from "../upstream/responses-recordings.ts";
import { adapter, callOf } from "./openai-adapter.ts";

/** Models of OpenAI that are called by its Responses interface: what is asked, and how answers are read. */

const MODEL = "gpt-5.1-codex-mini";
const ANSWER = {
  object: "response",
  status: "completed",
  output: [{ type: "message", content: [{ type: "output_text", text: "hi" }] }],
  usage: { input_tokens: 3, output_tokens: 2 },
};

type Fields = Record<string, unknown>;

interface Asked {
  readonly url: string;
  readonly body: Fields;
}

/** Calls the adapter once, which is answered with this. */
function asking(answer: unknown, model = MODEL, stream = false) {
  const asked: Asked[] = [];
  const provider = adapter("https://api.openai.com/v1", {
    type: "openai",
    answer(url, request) {
      asked.push({ url, body: JSON.parse(String(request.body)) });
      const isText = typeof answer === "string";
      const type = isText ? "text/event-stream" : "application/json";
      const body = isText ? answer : JSON.stringify(answer);
      return new Response(body, { headers: { "content-type": type } }) as ProviderResponse;
    },
  });
  const call = (body: Fields) =>
    provider.chat(callOf(model, { stream, body: { ...MESSAGES, ...body } }));
  return { asked, call };
}

const MESSAGES = { messages: [{ role: "user", content: "hello" }] };

/** What a request with these fields becomes. */
async function sent(body: Fields, model = MODEL): Promise<Asked> {
  const { asked, call } = asking(ANSWER, model);
  await call(body);
  return asked[0]!;
}

async function eventsOf(text: string): Promise<ChatEvent[]> {
  const { call } = asking(text, MODEL, true);
  return eventsIn(await call({}));
}

const framed = (events: readonly Fields[]): string =>
  events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");

describe("which models", () => {
  test.each([
    "gpt-5.1-codex-mini",
    "codex-mini-latest",
    "gpt-5-pro",
    "gpt-5.5-pro-2026-04-23",
    "o3-pro",
  ])("%s is asked there", async (model) => {
    expect((await sent({}, model)).url).toBe("https://api.openai.com/v1/responses");
  });

  test.each(["gpt-5", "gpt-4o", "o3-mini", "gpt-5-chat-latest"])("%s is not", async (model) => {
    const chat = { choices: [{ message: { content: "hi" }, finish_reason: "stop" }] };
    const { asked, call } = asking(chat, model);
    await call({});
    expect(asked[0]!.url).toBe("https://api.openai.com/v1/chat/completions");
  });

  test("a pro model is asked for a whole answer, which is given as a stream", async () => {
    const { asked, call } = asking(ANSWER, "gpt-5-pro", true);
    const answer = await call({});
    expect(asked[0]!.body.stream).toBeFalse();
    expect(answer.kind).toBe("stream");
  });
});

describe("the request", () => {
  test("keeps nothing at the provider, and takes the reasoning along", async () => {
    const { body } = await sent({ store: true, max_tokens: 4, user: "u", prompt_cache_key: "k" });
    expect(body).toEqual({
      model: MODEL,
      stream: false,
      store: false,
      include: ["reasoning.encrypted_content"],
      input: [{ type: "message", role: "user", content: "hello" }],
      max_output_tokens: 16,
      user: "u",
      prompt_cache_key: "k",
    });
  });

  test("has each kind of message and part in its form", async () => {
    const data = "data:application/pdf;base64,JVBERi0=";
    const { body } = await sent({
      messages: [
        { role: "system", content: "Be brief." },
        {
          role: "user",
          content: [
            { type: "text", text: "look" },
            { type: "image_url", image_url: { url: "https://a.test/b.png", detail: "low" } },
            { type: "file", file: { file_data: data, filename: "a.pdf" } },
            { type: "file", file: { file_data: "https://a.test/c.pdf" } },
          ],
        },
        {
          role: "assistant",
          content: "calling",
          tool_calls: [
            { id: "call_1", type: "function", function: { name: "look", arguments: '{"at":1}' } },
          ],
        },
        { role: "tool", tool_call_id: "call_1", content: "seen" },
        { role: "assistant", content: null, refusal: "No." },
      ],
    });
    expect(body.input).toEqual([
      { type: "message", role: "system", content: "Be brief." },
      {
        type: "message",
        role: "user",
        content: [
          { type: "input_text", text: "look" },
          { type: "input_image", image_url: "https://a.test/b.png", detail: "low" },
          { type: "input_file", file_data: data, filename: "a.pdf" },
          { type: "input_file", file_url: "https://a.test/c.pdf" },
        ],
      },
      { type: "message", role: "assistant", content: [{ type: "output_text", text: "calling" }] },
      { type: "function_call", call_id: "call_1", name: "look", arguments: '{"at":1}' },
      { type: "function_call_output", call_id: "call_1", output: "seen" },
      { type: "message", role: "assistant", content: [{ type: "refusal", refusal: "No." }] },
    ]);
  });

  test("has tools, formats and effort in its form", async () => {
    const { body } = await sent({
      tools: [{ type: "function", function: { name: "look", description: "d" } }],
      tool_choice: { type: "function", function: { name: "look" } },
      response_format: {
        type: "json_schema",
        json_schema: { name: "s", schema: {}, strict: true },
      },
      verbosity: "low",
      reasoning: { effort: "high", summary: "auto" },
    });
    expect(body).toMatchObject({
      tools: [
        {
          type: "function",
          name: "look",
          description: "d",
          parameters: { type: "object", properties: {} },
          strict: false,
        },
      ],
      tool_choice: { type: "function", name: "look" },
      text: {
        format: { type: "json_schema", name: "s", schema: {}, strict: true },
        verbosity: "low",
      },
      reasoning: { effort: "high", summary: "auto" },
    });
  });

  test.each([
    [
      "messages.0.content.0.type",
      { messages: [{ role: "user", content: [{ type: "input_audio" }] }] },
    ],
    ["messages.0.role", { messages: [{ role: "function", content: "x" }] }],
    ["tools.0", { tools: [{ type: "custom", custom: { name: "x" } }] }],
  ])("is refused for %s", async (param, fields) => {
    const failure = await sent(fields).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(ProviderFailure);
    expect(failure).toMatchObject({ kind: "rejected", param });
  });

  test("lacks sampling, stops and choices, which other models have", () => {
    const { unsupported: missing } = chatFieldsOf("openai");
    const of = (field: string, value: unknown, model: string) =>
      missing(field, value, { model, modelId: `openai/${model}` }, true, {});
    for (const field of ["stop", "n", "seed", "temperature"]) {
      expect(of(field, 1, MODEL)).toEqual([field]);
      expect(of(field, 1, "gpt-4o")).toEqual([]);
    }
    expect(of("reasoning", { effort: "low", max_tokens: 5 }, MODEL)).toEqual([
      "reasoning.max_tokens",
    ]);
  });
});

describe("the reasoning of recorded answers", () => {
  const turns = responsesRecordings().filter(({ said }) => said.encrypted.some(Boolean));

  test.each(turns.map((turn) => [turn.name, turn] as const))(
    "%s goes back as the item that it came in",
    async (_name, { stream, text, said }) => {
      const details = stream
        ? (await eventsOf(text)).flatMap((event) =>
            event.type === "reasoning" ? (event.details ?? []) : [],
          )
        : await detailsOfWhole(text);
      const message = { role: "assistant", content: "x", reasoning_details: details };
      const { body } = await sent({ messages: [message] });
      const items = (body.input as Fields[]).filter(({ type }) => type === "reasoning");
      expect(items.map((item) => item.encrypted_content)).toEqual([...said.encrypted]);
      const summaries = items.flatMap((item) => item.summary as { text: string }[]);
      expect(summaries.map((part) => part.text).join("")).toBe(said.reasoning);
      for (const item of items) expect(item.id).toStartWith("rs_");
    },
  );

  async function detailsOfWhole(text: string) {
    const { call } = asking(JSON.parse(text));
    return (await typedOf(await call({}))).choices[0]!.reasoningDetails;
  }
});

describe("an answer that fails or ends early", () => {
  const begun = [
    { type: "response.created", response: {} },
    { type: "response.output_text.delta", output_index: 0, delta: "some" },
  ];
  const usage = { input_tokens: 5, output_tokens: 7 };

  test("in mid-stream, with what it has used", async () => {
    const error = { code: "server_error", message: "It broke." };
    const failed = { type: "response.failed", response: { status: "failed", error, usage } };
    expect(await eventsOf(framed([...begun, failed]))).toMatchObject([
      { type: "text", text: "some" },
      { type: "usage", usage: { promptTokens: 5, completionTokens: 7 } },
      {
        type: "error",
        failure: { kind: "unavailable", message: expect.stringContaining("It broke") },
      },
    ]);
  });

  test("by an error event, after which nothing counts", async () => {
    const error = { type: "error", code: "rate_limit_exceeded", message: "Slow down." };
    const events = await eventsOf(framed([...begun, error, ...begun]));
    expect(events.map(({ type }) => type)).toEqual(["text", "error"]);
    expect(events[1]).toMatchObject({ failure: { kind: "rate_limited" } });
  });

  test.each([
    ["max_output_tokens", "length"],
    ["content_filter", "content_filter"],
  ])("because of %s", async (reason, finish) => {
    const response = { status: "incomplete", incomplete_details: { reason }, usage };
    const events = await eventsOf(framed([...begun, { type: "response.incomplete", response }]));
    expect(events.at(-1)).toMatchObject({ type: "finish", reason: finish });
  });

  test("with a refusal", async () => {
    const events = await eventsOf(
      framed([
        { type: "response.refusal.delta", output_index: 0, delta: "No." },
        { type: "response.completed", response: { status: "completed", usage } },
      ]),
    );
    expect(events).toMatchObject([
      { type: "refusal", text: "No." },
      { type: "usage" },
      { type: "finish", reason: "content_filter" },
    ]);
  });

  test("without its end has no finish", async () => {
    expect((await eventsOf(framed(begun))).map(({ type }) => type)).toEqual(["text"]);
  });

  test.each([
    ["no object", [1]],
    ["no output", { object: "response", status: "completed" }],
    ["still running", { ...ANSWER, status: "in_progress" }],
    ["a call without a name", { ...ANSWER, output: [{ type: "function_call", call_id: "c" }] }],
    ["an error", { ...ANSWER, error: { code: "server_error", message: "no" } }],
  ])("whole: %s", async (_what, body) => {
    const failure = await asking(body)
      .call({})
      .catch((error: unknown) => error);
    expect(failure).toMatchObject({ kind: "unavailable" });
  });
});
