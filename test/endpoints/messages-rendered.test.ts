import { describe, expect, test } from "bun:test";
import { MessageRenderer } from "../../src/inference/endpoints/messages/message-renderer.ts";
import { ByteBuffer } from "../../src/lib/byte-buffer.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { estimatedUsage } from "../../src/lib/usage.ts";
import { type ChatEvent, ProviderFailure } from "../../src/providers/interface.ts";
import { OpenAiStream } from "../../src/providers/openai/chat/chat-answers.ts";
import { messageEvents } from "../support/message-events.ts";
import { startStopwatch } from "../support/stopwatch.ts";

type Fields = Record<string, unknown>;

const options = { id: "msg_1", model: "test/m", hidesReasoning: false, nowSeconds: 1 };
const USAGE = { ...estimatedUsage(30, 9), cachedPromptTokens: 10, estimated: false };

/** What a client gets of these events, each a batch of its own. */
function rendered(events: readonly ChatEvent[]): Fields[] {
  const output = new ByteBuffer();
  const renderer = new MessageRenderer(
    { ...options, estimatedInput: estimatedUsage(5, 0) },
    output,
  );
  for (const event of events) renderer.push([event]);
  const { usage = USAGE } = renderer;
  output.add(renderer.closing(usage, 0.5));
  return messageEvents(Buffer.from(output.take()).toString());
}

/** The blocks of a message that the events amount to; throws where blocks overlap. */
function blocksOf(events: readonly Fields[]): Fields[] {
  const blocks: Fields[] = [];
  let open: Fields | undefined;
  for (const event of events) {
    if (event.type === "content_block_start") {
      if (open !== undefined || event.index !== blocks.length) throw new Error("blocks overlap");
      open = { ...(event.content_block as Fields) };
    } else if (event.type === "content_block_delta") {
      if (event.index !== blocks.length) throw new Error("a delta of another block");
      const delta = event.delta as Record<string, string>;
      for (const name of ["text", "thinking", "signature", "partial_json"]) {
        if (delta[name] !== undefined) open![name] = `${open![name] ?? ""}${delta[name]}`;
      }
    } else if (event.type === "content_block_stop") {
      blocks.push(open!);
      open = undefined;
    }
  }
  if (open !== undefined) throw new Error("a block without its end");
  return blocks;
}

const choice = 0;
const text = (said: string): ChatEvent => ({ type: "text", choice, text: said });
const call = (index: number, rest: Fields): ChatEvent =>
  ({ type: "tool_call", choice, index, ...rest }) as ChatEvent;
const finish = (reason: "stop" | "tool_calls", stopSequence?: string): ChatEvent => ({
  type: "finish",
  choice,
  reason,
  ...(stopSequence !== undefined && { stopSequence }),
});

describe("typed events as those of the Messages API", () => {
  test("begin with the message and a ping, and end with the usage and the price", () => {
    const usage: ChatEvent = { type: "usage", usage: USAGE };
    const events = rendered([text("a"), text("b"), finish("stop"), usage]);
    expect(events.map(({ type }) => type)).toEqual([
      "message_start",
      "ping",
      "content_block_start",
      "content_block_delta",
      "content_block_delta",
      "content_block_stop",
      "message_delta",
      "message_stop",
    ]);
    expect(events[0]!.message).toMatchObject({ id: "msg_1", usage: { input_tokens: 5 } });
    expect(events.at(-2)).toEqual({
      type: "message_delta",
      delta: { stop_reason: "end_turn", stop_sequence: null },
      usage: {
        input_tokens: 20,
        cache_read_input_tokens: 10,
        cache_creation_input_tokens: 0,
        output_tokens: 9,
        cost: 0.5,
      },
    });
  });

  test("tell the sequence that ended the answer", () => {
    expect(rendered([text("a"), finish("stop", "END")]).at(-2)!.delta).toEqual({
      stop_reason: "stop_sequence",
      stop_sequence: "END",
    });
  });

  test("keep blocks apart, in their order", () => {
    const thought = { type: "reasoning.text", text: "hm", format: "anthropic-claude-v1", index: 0 };
    const signed = { type: "reasoning.text", signature: "s", format: thought.format, index: 0 };
    const hidden = { type: "reasoning.encrypted", data: "x", format: thought.format, index: 1 };
    const reasoning = (said: string, detail: Fields): ChatEvent => ({
      type: "reasoning",
      choice,
      text: said,
      details: [detail as never],
    });
    const events = rendered([
      reasoning("hm", thought),
      reasoning("", signed),
      reasoning("", hidden),
      text("a"),
      call(0, { id: "c", name: "look" }),
      call(0, { arguments: '{"at":1}' }),
      finish("tool_calls"),
    ]);
    expect(blocksOf(events)).toEqual([
      { type: "thinking", thinking: "hm", signature: "s" },
      { type: "redacted_thinking", data: "x" },
      { type: "text", text: "a" },
      { type: "tool_use", id: "c", name: "look", input: {}, partial_json: '{"at":1}' },
    ]);
    expect((events.at(-2)!.delta as Fields).stop_reason).toBe("tool_use");
  });

  test("bring calls one behind the other, however their pieces come", () => {
    const events = rendered([
      call(0, { id: "a", name: "look" }),
      call(1, { id: "b", name: "look", arguments: '{"at"' }),
      call(0, { arguments: '{"at":' }),
      call(2, { id: "c", name: "rest" }),
      call(1, { arguments: ":2}" }),
      call(0, { arguments: "1}" }),
      finish("tool_calls"),
    ]);
    expect(blocksOf(events)).toEqual([
      { type: "tool_use", id: "a", name: "look", input: {}, partial_json: '{"at":1}' },
      { type: "tool_use", id: "b", name: "look", input: {}, partial_json: '{"at":2}' },
      { type: "tool_use", id: "c", name: "rest", input: {} },
    ]);
  });

  test("send each piece of a call at once while it is the only one", () => {
    const output = new ByteBuffer();
    const renderer = new MessageRenderer({ ...options, estimatedInput: USAGE }, output);
    renderer.push([call(0, { id: "a", name: "look" }), call(0, { arguments: '{"a' })]);
    expect(Buffer.from(output.take()).toString()).toContain('"partial_json":"{\\"a"');
    renderer.push([call(0, { arguments: '":1}' }), call(1, { id: "b", name: "look" })]);
    expect(Buffer.from(output.take()).toString()).toContain('"id":"b"');
  });
});

const chunk = (delta: Fields, reason: string | null = null, rest: Fields = {}) =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: reason }], ...rest })}\n\n`;

/** All events of a stream whose connection stays open behind these pieces. */
async function eventsOf(...pieces: string[]): Promise<ChatEvent[]> {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const piece of pieces) controller.enqueue(new TextEncoder().encode(piece));
    },
  });
  const failureOf = () =>
    new ProviderFailure("unavailable", "the provider said no", { status: 500 });
  const reader = new OpenAiStream(body.getReader(), systemClock, failureOf).events(options);
  const events: ChatEvent[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return events;
    events.push(...value!);
  }
}

describe("a stream of OpenAI's wire as typed events", () => {
  test("ends with its mark, though its connection stays open", async () => {
    const usage = { prompt_tokens: 3, completion_tokens: 2 };
    const events = await eventsOf(
      chunk({ content: "a" }),
      chunk({ content: "é" }),
      chunk({}, "stop"),
      `data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`,
    );
    expect(events).toEqual([
      text("a"),
      text("é"),
      { type: "finish", choice: 0, reason: "stop" },
      { type: "usage", usage: expect.objectContaining({ promptTokens: 3, completionTokens: 2 }) },
    ]);
  });

  test("tells an error, and the usage behind it", async () => {
    const events = await eventsOf(
      chunk({ content: "a" }),
      'data: {"error":{"message":"no"}}\n\n',
      `data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 3, completion_tokens: 2 } })}\n\n`,
      "data: [DONE]\n\n",
    );
    expect(events.map(({ type }) => type)).toEqual(["text", "error", "usage"]);
  });
});

test("a call that does not end costs those that follow it nothing", () => {
  const elapsedMs = startStopwatch();
  const events = [call(0, { id: "a", name: "f", arguments: `[${"1,".repeat(500_000)}` })];
  for (let index = 1; index < 2_000; index++) {
    events.push(call(index, { id: `b${index}`, name: "f", arguments: "{}" }));
  }
  events.push(call(0, { arguments: "1]" }), finish("tool_calls"));
  const blocks = blocksOf(rendered(events));
  expect(blocks).toHaveLength(2_000);
  expect(JSON.parse(blocks[0]!.partial_json as string)).toHaveLength(500_001);
  // Reading the first at each of the others took ten seconds.
  expect(elapsedMs()).toBeLessThan(3_000);
});
