import { afterAll, describe, expect, test } from "bun:test";
import { readAnswer } from "../../src/inference/endpoints/chat-completions/render-answer.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { FairWorkThread } from "../../src/lib/work-thread.ts";
import { createAnthropicProvider } from "../../src/providers/anthropic/chat-provider.ts";
import { createCohereProvider } from "../../src/providers/cohere/cohere-provider.ts";
import { createGeminiProvider } from "../../src/providers/gemini/gemini-provider.ts";
import {
  type ChatAnswer,
  type ChatEvent,
  type Provider,
  ProviderFailure,
} from "../../src/providers/interface.ts";
import { createOllamaProvider } from "../../src/providers/ollama/ollama-provider.ts";
import { MAX_QUICK_ANSWER_BYTES } from "../../src/providers/transport/bounded-body.ts";
import { wholeOf } from "../../src/providers/transport/call-failures.ts";
import type { HttpClient } from "../../src/providers/transport/provider-response.ts";
import { said, start } from "../support/anthropic-events.ts";
import { framed } from "../support/anthropic-recordings.ts";
import { eventsIn } from "../support/chat-answers.ts";
import { callOf } from "./openai-adapter.ts";

/** Answers of the wires that are not OpenAI's that a work thread reads, because they are long. */

const workThread = new FairWorkThread({
  script: new URL("../../src/main/compose/long-work-thread.ts", import.meta.url),
  deadlineMs: 20_000,
  maxWaiting: 100,
  maxWaitingOfOne: 100,
  maxWaitMs: 20_000,
  onLost: () => {},
});
afterAll(() => workThread.close());

const json = { "content-type": "application/json" };
let answer = "";
/** Answers in place of `answer`. */
let stream: (() => ReadableStream<Uint8Array>) | undefined;
const httpClient: HttpClient = {
  send: (_url, _request, receiver) =>
    receiver.responded(
      stream === undefined
        ? new Response(answer, { headers: json })
        : new Response(stream(), { headers: { "content-type": "text/event-stream" } }),
    ),
};
const API_KEY = "sk-ant-api03-key-of-the-test";
const settings = (type: string) => ({
  id: type,
  type,
  baseUrl: "http://127.0.0.1:1/v1",
  apiKey: API_KEY,
  connectTimeoutMs: 1_000,
});
const dependencies = { clock: systemClock, httpClient, workThread };
const PROVIDER_FACTORIES: readonly (readonly [string, Provider, object])[] = [
  [
    "Anthropic's",
    createAnthropicProvider(settings("anthropic"), dependencies),
    {
      type: "message",
      content: [
        { type: "thinking", thinking: "hm é", signature: "c2ln" },
        { type: "text", text: "Grüße 👋" },
        { type: "tool_use", id: "toolu_1", name: "look", input: { at: "the sky" } },
      ],
      stop_reason: "tool_use",
      usage: { input_tokens: 9, cache_read_input_tokens: 3, output_tokens: 7 },
    },
  ],
  [
    "Google's",
    createGeminiProvider(settings("google"), dependencies),
    {
      candidates: [
        {
          content: {
            parts: [
              { text: "hm é", thought: true },
              { text: "Grüße 👋" },
              { functionCall: { id: "c", name: "look", args: { at: "the sky" } } },
            ],
          },
          finishReason: "STOP",
        },
      ],
      usageMetadata: { promptTokenCount: 12, candidatesTokenCount: 5, thoughtsTokenCount: 2 },
    },
  ],
  [
    "Cohere's",
    createCohereProvider(settings("cohere"), dependencies),
    {
      message: {
        content: [
          { type: "thinking", thinking: "hm é" },
          { type: "text", text: "Grüße 👋" },
        ],
        tool_calls: [
          { id: "c", type: "function", function: { name: "look", arguments: '{"at":"the sky"}' } },
        ],
      },
      finish_reason: "TOOL_CALL",
      usage: { billed_units: { input_tokens: 12, output_tokens: 7 } },
    },
  ],
  [
    "Ollama's",
    createOllamaProvider(settings("ollama"), dependencies),
    {
      message: {
        thinking: "hm é",
        content: "Grüße 👋",
        tool_calls: [
          { id: "c", function: { index: 0, name: "look", arguments: { at: "the sky" } } },
        ],
      },
      done: true,
      done_reason: "stop",
      prompt_eval_count: 12,
      eval_count: 7,
    },
  ],
];
/** White space makes any answer long. */
const PADDING = " ".repeat(MAX_QUICK_ANSWER_BYTES);
const OPTIONS = { requestId: "req_0123456789abcdef", nowSeconds: 1_000 };

async function completion(provider: Provider, text: string, hidesReasoning = false) {
  answer = text;
  const body = { messages: [{ role: "user", content: "hello" }], max_tokens: 99 };
  const said = wholeOf(await provider.chat!(callOf("claude-or-gemini", { body })));
  expect(said.isLong).toBe(text.length > MAX_QUICK_ANSWER_BYTES);
  return readAnswer(said, { ...OPTIONS, hidesReasoning });
}

const failure = (made: Promise<unknown>) =>
  made.then(
    () => undefined,
    (error: unknown) => {
      if (!(error instanceof ProviderFailure)) throw error;
      return { kind: error.kind, message: error.message, status: error.status };
    },
  );

describe.each(PROVIDER_FACTORIES)("%s", (_name, provider, whole) => {
  test.each([false, true])(
    "an answer is the same to the client, long or short (reasoning hidden: %p)",
    async (hidesReasoning) => {
      const text = JSON.stringify(whole);
      const short = await completion(provider, text, hidesReasoning);
      const long = await completion(provider, text + PADDING, hidesReasoning);
      const read = JSON.parse(new TextDecoder().decode(long.body as Uint8Array));
      expect(read).toEqual(JSON.parse(JSON.stringify(short.body)));
      expect({ ...long, body: null }).toEqual({ ...short, body: null });
      const [{ message }] = read.choices;
      expect(message).toMatchObject({ content: "Grüße 👋", tool_calls: [{ type: "function" }] });
      expect("reasoning" in message).toBe(!hidesReasoning);
    },
  );

  test.each([
    ["an error that quotes the key", `{"error":{"message":"no ${API_KEY}","code":500}}`],
    ["no JSON", "{nothing"],
    ["no object", "[]"],
    ["nothing", "{}"],
    [
      "JSON that is nested too deeply",
      `{"content":${"[".repeat(2_000)}${"]".repeat(2_000)},"x":"${"y".repeat(2_000)}"}`,
    ],
  ])("%s fails alike, long or short", async (_what, text) => {
    const short = await failure(completion(provider, text));
    expect(short).toBeDefined();
    expect(short!.message).not.toContain(API_KEY);
    expect(await failure(completion(provider, text + PADDING))).toEqual(short);
  });

  test("a whole answer to a request for a stream is a stream of it", async () => {
    answer = JSON.stringify(whole);
    const body = { messages: [{ role: "user", content: "hello" }], max_tokens: 99 };
    const events = await eventsOf(provider.chat!(callOf("m", { stream: true, body })));
    expect(events.find(({ type }) => type === "text")).toMatchObject({ text: "Grüße 👋" });
    expect(events.find(({ type }) => type === "tool_call")).toMatchObject({
      name: "look",
      arguments: '{"at":"the sky"}',
    });
    expect(events.find(({ type }) => type === "finish")).toMatchObject({ reason: "tool_calls" });
    expect(events.find(({ type }) => type === "usage")).toMatchObject({
      usage: { promptTokens: 12, completionTokens: 7 },
    });
    // As on OpenAI's wire: what the event loop would parse for too long is no stream.
    answer += " ".repeat(1_048_576);
    const refused = provider.chat!(callOf("m", { stream: true, body }));
    expect((await failure(refused))!.message).toContain("too many bytes");
  });
});

test.each([
  ["Anthropic's", PROVIDER_FACTORIES[0]![1], framed([start(), ...said("half")])],
  [
    "Google's",
    PROVIDER_FACTORIES[1]![1],
    `data: ${JSON.stringify({ candidates: [{ content: { parts: [{ text: "half" }] } }] })}\n\n`,
  ],
])(
  "an event of %s wire of more than 16 MB is an error behind what came",
  async (_, provider, begun) => {
    stream = () =>
      new ReadableStream({
        start(controller) {
          controller.enqueue(new TextEncoder().encode(begun));
          controller.enqueue(new Uint8Array(17 * 1024 * 1024).fill(0x78));
          controller.close();
        },
      });
    const body = { messages: [{ role: "user", content: "hello" }], max_tokens: 99 };
    const events = await eventsOf(provider.chat!(callOf("m", { stream: true, body })));
    stream = undefined;
    expect(events.find(({ type }) => type === "text")).toMatchObject({ text: "half" });
    expect(events.at(-1)).toMatchObject({ type: "error", failure: { kind: "unavailable" } });
  },
);

async function eventsOf(answered: Promise<ChatAnswer>): Promise<ChatEvent[]> {
  return eventsIn(await answered);
}

test("embeddings over Google's wire are the same, long or short", async () => {
  const provider = PROVIDER_FACTORIES[1]![1];
  const embed = (text: string) => {
    answer = text;
    return provider.embed!({
      model: "m",
      requestId: "req_1",
      signal: new AbortController().signal,
      inputs: ["a"],
      fields: {},
    });
  };
  const text = JSON.stringify({ embeddings: [{ values: [0.25, -1] }] });
  const long = await embed(text + PADDING);
  expect(long).toEqual(await embed(text));
  expect([...Array.from(long.vectors[0]!)]).toEqual([0.25, -1]);
  const broken = JSON.stringify({ error: { code: 429, message: "slow down" } });
  expect(await failure(embed(broken + PADDING))).toMatchObject({ kind: "rate_limited" });
});
