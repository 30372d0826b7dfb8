import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { MessagesDecoder } from "../../src/providers/anthropic/event-decoder.ts";
import { ClaudeStream } from "../../src/providers/bedrock/claude-stream.ts";
import { converseAnswer } from "../../src/providers/bedrock/converse-answer.ts";
import { ConverseDecoder } from "../../src/providers/bedrock/converse-event-decoder.ts";
import { reportedUsage } from "../../src/providers/bedrock/reported-usage.ts";
import {
  type ChatEvent,
  type PieceReader,
  ProviderFailure,
} from "../../src/providers/interface.ts";
import { TypedStreamReader } from "../../src/providers/typed-stream-reader.ts";
import { chunk, encodedMessage, event, events, exception } from "../support/aws-event-stream.ts";

type Fields = Record<string, unknown>;

const FIXTURES = join(import.meta.dir, "..", "fixtures");
const CONTEXT = { nowMs: 0, apiKey: undefined };

function pieces(...all: Uint8Array[]): PieceReader & { isCancelled: boolean } {
  const waiting = [...all];
  return {
    isCancelled: false,
    async read() {
      const value = waiting.shift();
      return value === undefined ? { done: true } : { done: false, value };
    },
    async cancel() {
      this.isCancelled = true;
    },
  };
}

async function allOf(reader: PieceReader<readonly ChatEvent[]>): Promise<ChatEvent[]> {
  const all: ChatEvent[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return all;
    all.push(...value!);
  }
}

const clock = { after: () => () => undefined } as never;
const streamOf = (source: PieceReader, answersByTool = false) =>
  allOf(new TypedStreamReader(source, new ConverseDecoder(answersByTool, () => CONTEXT), clock));
const converse = (bytes: Uint8Array, answersByTool = false) =>
  streamOf(pieces(bytes), answersByTool);
const stop = (stopReason: string) => ({ messageStop: { stopReason } });
const start = (contentBlockIndex: number, toolUse: Fields) => ({
  contentBlockStart: { contentBlockIndex, start: { toolUse } },
});
const delta = (contentBlockIndex: number, piece: Fields) => ({
  contentBlockDelta: { contentBlockIndex, delta: piece },
});
const end = (contentBlockIndex: number) => ({ contentBlockStop: { contentBlockIndex } });

describe("a stream of Converse", () => {
  test("has a call whose block states the type tool_use, or null", async () => {
    const recorded = readFileSync(
      join(FIXTURES, "vercel-ai/bedrock/amazon-bedrock-tool-call.1.chunks.txt"),
      "utf8",
    );
    for (const type of ["tool_use", null]) {
      const messages = recorded
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line) as Fields)
        .map((one) => {
          const begun = one.contentBlockStart as { start: { toolUse: Fields } } | undefined;
          if (begun !== undefined) begun.start.toolUse.type = type;
          return one;
        });
      expect(await converse(events(...messages))).toContainEqual({
        ...{ type: "tool_call", choice: 0, index: 0, id: "tool-use-id", name: "test-tool" },
      });
    }
  });

  test("parallel calls keep their places, and input that is no JSON goes on as it is", async () => {
    const bytes = events(
      delta(0, { text: "I look." }),
      start(1, { toolUseId: "a", name: "look" }),
      start(2, { toolUseId: "b", name: "run" }),
      delta(2, { toolUse: { input: "{no" } }),
      delta(1, { toolUse: { input: '{"at":1}' } }),
      delta(2, { toolUse: { input: " JSON" } }),
      end(1),
      end(2),
      stop("tool_use"),
    );
    const choice = 0;
    expect(await converse(bytes)).toEqual([
      { type: "text", choice, text: "I look." },
      { type: "tool_call", choice, index: 0, id: "a", name: "look" },
      { type: "tool_call", choice, index: 1, id: "b", name: "run" },
      { type: "tool_call", choice, index: 1, arguments: "{no" },
      { type: "tool_call", choice, index: 0, arguments: '{"at":1}' },
      { type: "tool_call", choice, index: 1, arguments: " JSON" },
      { type: "finish", choice, reason: "tool_calls" },
    ]);
  });

  test("redacted reasoning in pieces is joined as bytes", async () => {
    const [one, two] = [Buffer.from("ab").toString("base64"), Buffer.from("cd").toString("base64")];
    const bytes = events(
      delta(0, { reasoningContent: { redactedContent: one } }),
      delta(0, { reasoningContent: { redactedContent: two } }),
      end(0),
      stop("end_turn"),
    );
    const data = Buffer.from("abcd").toString("base64");
    const details = [{ type: "reasoning.encrypted", data, format: "amazon-bedrock-v1", index: 0 }];
    expect((await converse(bytes))[0]).toEqual({
      type: "reasoning",
      choice: 0,
      text: "",
      details,
    } as never);
  });

  test("the input of the tool for JSON is the answer", async () => {
    const bytes = events(
      start(0, { toolUseId: "a", name: "answer_in_json" }),
      delta(0, { toolUse: { input: '{"a":' } }),
      delta(0, { toolUse: { input: "1}" } }),
      stop("tool_use"),
    );
    expect(await converse(bytes, true)).toEqual([
      { type: "text", choice: 0, text: '{"a":' },
      { type: "text", choice: 0, text: "1}" },
      { type: "finish", choice: 0, reason: "stop" },
    ]);
  });

  test("events, blocks, deltas and kinds of messages that are not known are passed over", async () => {
    const bytes = Buffer.concat([
      event("weather", { is: "fine" }),
      event("constructor", {}),
      encodedMessage({ ":message-type": "event" }, "not JSON"),
      encodedMessage({ ":message-type": "news", ":event-type": "toString" }, "not JSON"),
      events(
        { contentBlockStart: { contentBlockIndex: 0, start: { image: { format: "png" } } } },
        delta(0, { hologram: "?" }),
        delta(0, { toolUse: { input: "of no call" } }),
        start(1, { toolUseId: "s", name: "nova_grounding", type: "server_tool_use" }),
        delta(1, { toolUse: { input: "{}" } }),
        end(7),
        stop("a_new_reason"),
      ),
    ]);
    expect(await converse(bytes)).toEqual([{ type: "finish", choice: 0, reason: "stop" }]);
  });

  test.each([
    ["end_turn", "stop"],
    ["stop_sequence", "stop"],
    ["max_tokens", "length"],
    ["model_context_window_exceeded", "length"],
    ["guardrail_intervened", "content_filter"],
    ["content_filtered", "content_filter"],
    // Without a call.
    ["tool_use", "stop"],
  ])("ends with %s as %s", async (reason, finish) => {
    expect(await converse(events(stop(reason)))).toEqual([
      { type: "finish", choice: 0, reason: finish as never },
    ]);
  });

  test.each(["malformed_tool_use", "malformed_model_output"])("%s is a failure", async (reason) => {
    const [failed] = await converse(events(stop(reason)));
    expect(failed).toMatchObject({ type: "error", failure: { kind: "unavailable" } });
  });

  test.each([
    ["throttlingException", "rate_limited", 429],
    ["validationException", "rejected", 400],
    ["modelStreamErrorException", "unavailable", 500],
    ["internalServerException", "unavailable", 500],
    ["serviceUnavailableException", "unavailable", 503],
    ["modelTimeoutException", "timeout", 408],
    ["anExceptionOfTomorrow", "unavailable", 500],
  ])("%s is a failure, and the connection is dropped", async (type, kind, status) => {
    const source = pieces(
      events(delta(0, { text: "a" })),
      exception(type, "It broke."),
      events(stop("end_turn")),
    );
    const all = await streamOf(source);
    expect(all).toEqual([
      { type: "text", choice: 0, text: "a" },
      { type: "error", failure: expect.any(ProviderFailure) },
    ]);
    expect(all[1]).toMatchObject({ failure: { kind, status, message: "It broke." } });
    expect(source.isCancelled).toBeTrue();
  });

  test("an error without a payload is one by its code", async () => {
    const bytes = encodedMessage(
      { ":message-type": "error", ":error-code": "InternalFailure", ":error-message": "Broken." },
      "",
    );
    expect((await converse(bytes))[0]).toMatchObject({
      type: "error",
      failure: { kind: "unavailable", message: "Broken." },
    });
  });

  test("a call without id or name, and an event that is no object, are failures", async () => {
    for (const bytes of [events(start(0, { name: "look" })), events({ messageStop: 3 })]) {
      expect((await converse(bytes))[0]).toMatchObject({ failure: { kind: "unavailable" } });
    }
  });
});

describe("a whole answer of Converse", () => {
  const completionOf = (body: unknown) =>
    converseAnswer.read(JSON.stringify(body), { answersByTool: false });
  const answer = (content: unknown, more: Fields = {}) => ({
    output: { message: { role: "assistant", content } },
    stopReason: "end_turn",
    usage: { inputTokens: 3, outputTokens: 2, totalTokens: 5 },
    ...more,
  });

  test("has its blocks in their kinds", () => {
    const read = completionOf(
      answer([
        { reasoningContent: { reasoningText: { text: "Hm.", signature: "s" } } },
        { reasoningContent: { redactedContent: "eA==" } },
        { text: "See: " },
        { citationsContent: { content: [{ text: "this" }, { other: 1 }], citations: [] } },
        { toolUse: { toolUseId: "a", name: "look", input: { at: 1 } } },
        { toolUse: { toolUseId: "b", name: "look", input: {}, type: "tool_use" } },
        { toolUse: { toolUseId: "s", name: "x", input: {}, type: "server_tool_use" } },
        { hologram: {} },
        null,
      ]),
    );
    const format = "amazon-bedrock-v1";
    const details = [
      { type: "reasoning.text", text: "Hm.", signature: "s", format, index: 0 },
      { type: "reasoning.encrypted", data: "eA==", format, index: 1 },
    ];
    const call = { id: "a", name: "look", arguments: '{"at":1}' };
    expect(read.choices).toEqual([
      {
        text: "See: this",
        reasoning: "Hm.",
        reasoningDetails: details as never,
        toolCalls: [call, { id: "b", name: "look", arguments: "{}" }],
        finish: "tool_calls",
      },
    ]);
  });

  test.each([[{}], [null], [[]], [{ output: {} }], [{ output: { message: { content: "text" } } }]])(
    "%j is none",
    (body) => {
      expect(() => completionOf(body)).toThrow(ProviderFailure);
    },
  );
});

describe("usage", () => {
  const usage = (more: Fields) => reportedUsage({ inputTokens: 10, outputTokens: 5, ...more });

  test("of a cache stands beside the prompt, or in it where the total says so", () => {
    const cache = { cacheReadInputTokens: 4, cacheWriteInputTokens: 3 };
    const common = { cachedPromptTokens: 4, cacheWriteTokens: 3, completionTokens: 5 };
    expect(usage({ ...cache, totalTokens: 22 })).toMatchObject({ promptTokens: 17, ...common });
    expect(usage(cache)).toMatchObject({ promptTokens: 17, ...common });
    expect(usage({ ...cache, totalTokens: 15 })).toMatchObject({ promptTokens: 10, ...common });
  });

  test("tells what is kept for an hour", () => {
    const cacheDetails = [
      { ttl: "1h", inputTokens: 20 },
      { ttl: "5m", inputTokens: 30 },
    ];
    expect(usage({ cacheWriteInputTokens: 50, cacheDetails })).toMatchObject({
      promptTokens: 60,
      cacheWriteTokens: 50,
      cacheWriteHourTokens: 20,
    });
    // The details say more than the sum.
    expect(usage({ cacheDetails })).toMatchObject({ cacheWriteTokens: 50 });
  });

  test.each([
    undefined,
    null,
    {},
    { inputTokens: 0, outputTokens: 5 },
    { inputTokens: -1, outputTokens: 5 },
    { inputTokens: 1.5, outputTokens: 5 },
    { inputTokens: "10", outputTokens: 5 },
    { inputTokens: 10, outputTokens: 2 ** 60 },
    { inputTokens: Number.MAX_SAFE_INTEGER, outputTokens: 5, cacheReadInputTokens: 5 },
  ])("%j is none that can be true", (raw) => {
    expect(reportedUsage(raw)).toBeUndefined();
  });
});

describe("a stream of one of Anthropic's models", () => {
  const claude = (...all: Uint8Array[]) => {
    const bytes = new ClaudeStream(pieces(...all), () => CONTEXT);
    return new TypedStreamReader(bytes, new MessagesDecoder(false, () => CONTEXT), clock);
  };
  const text = (one: string) =>
    chunk({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text: one } });

  test("is Anthropic's own, also where its JSON has line breaks; other messages are passed over", async () => {
    const pretty = JSON.stringify({ type: "message_stop", x: 1 }, null, 2).replaceAll("\n", "\r\n");
    const reader = claude(
      Buffer.concat([event("weather", {}), text("Hé"), text("llo")]),
      Buffer.concat([
        chunk({ type: "message_delta", delta: { stop_reason: "end_turn" }, usage: null }),
        chunk(pretty),
      ]),
    );
    expect(await allOf(reader)).toEqual([
      { type: "text", choice: 0, text: "Hé" },
      { type: "text", choice: 0, text: "llo" },
      { type: "finish", choice: 0, reason: "stop" },
    ]);
  });

  test.each([
    ["an exception", exception("throttlingException", "Slow down."), "rate_limited"],
    ["a part without bytes", event("chunk", { p: "abc" }), "unavailable"],
    ["a broken message", Buffer.from("nonsense nonsense"), "unavailable"],
  ])("%s rejects, behind the text that came before it", async (_what, broken, kind) => {
    const reader = claude(Buffer.concat([text("a"), broken]));
    expect((await reader.read()).value).toEqual([{ type: "text", choice: 0, text: "a" }]);
    const failure = await reader.read().catch((error: unknown) => error);
    expect(failure).toMatchObject({ kind });
    const atOnce = await claude(broken)
      .read()
      .catch((error: unknown) => error);
    expect(atOnce).toMatchObject({ kind });
  });

  test("an end in the midst of a message rejects", async () => {
    const reader = claude(text("a"), text("b").subarray(0, 50));
    await reader.read();
    await reader.read();
    expect(await reader.read().catch((error: unknown) => error)).toMatchObject({
      kind: "unavailable",
    });
  });
});
