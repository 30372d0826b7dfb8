import { describe, expect, test } from "bun:test";
import { StreamRelay } from "../../src/inference/call/stream/relay.ts";
import { ByteBuffer } from "../../src/lib/byte-buffer.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { OpenAiStream } from "../../src/providers/openai/chat/chat-answers.ts";

const OPTIONS = { id: "x", model: "m", hidesReasoning: false, nowSeconds: 1 };
const CHOICE = { index: 0, delta: { content: "a" }, finish_reason: "stop" };

/** A complete answer whose connection stays open after its end marker. */
function openStream(clock: VirtualClock) {
  const state = { isCancelled: false };
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      const frames = `data: ${JSON.stringify({ choices: [CHOICE] })}\n\ndata: [DONE]\n\n`;
      controller.enqueue(new TextEncoder().encode(frames));
    },
    cancel() {
      state.isCancelled = true;
    },
  });
  return { state, stream: new OpenAiStream(body.getReader(), clock) };
}

describe("a connection that stays open after the end marker is closed after one second of the clock", () => {
  test("if the stream is relayed", async () => {
    const clock = new VirtualClock();
    const { state, stream } = openStream(clock);
    const pending = new ByteBuffer();
    const ended = Promise.withResolvers<void>();
    const relay = new StreamRelay(
      { ...stream.passThrough(OPTIONS, pending), pending },
      {
        checkpoints: { admit: () => undefined } as never,
        output: { deliver: () => undefined } as never,
        steadyClock: clock,
        membership: { whenCurrent: () => undefined },
        choices: 1,
        maxOutputBytes: 1_000,
        onEnd: async () => ended.resolve(),
        onFailure: async (error) => ended.reject(error),
      },
    );
    await relay.pull();
    await relay.pull();
    await ended.promise;
    clock.advance(999);
    expect(state.isCancelled).toBe(false);
    clock.advance(1);
    expect(state.isCancelled).toBe(true);
  });

  test("if the stream is read as typed events", async () => {
    const clock = new VirtualClock();
    const { state, stream } = openStream(clock);
    const events = stream.events(OPTIONS);
    while (!(await events.read()).done);
    clock.advance(999);
    expect(state.isCancelled).toBe(false);
    clock.advance(1);
    expect(state.isCancelled).toBe(true);
  });
});
