import { afterAll, beforeEach, expect, test } from "bun:test";
import { ABSURD_USAGES } from "./absurd-usages.ts";
import { ask, askStream } from "./ask.ts";
import { expectedOfStream, expectedOfWhole } from "./expected.ts";
import { startUpstream } from "./server.ts";
import { OVERFLOWING_NUMBER } from "./wire.ts";

const CONTENT = "one two three four five six seven";
const upstream = await startUpstream({ models: ["m", "other"] });
afterAll(() => upstream.stop());
beforeEach(() => upstream.reset());

test.each([0, 1, 4])(
  "a cut after %d events destroys the connection there, every one of them delivered",
  async (afterEvents) => {
    upstream.behave("m", { do: "cut", afterEvents, content: CONTENT });
    const asked = await askStream(upstream, "m");
    expect(asked.failed).toBe(true);
    expect(framesOf(asked.text)).toHaveLength(afterEvents);
    expect(asked.text).not.toContain("[DONE]");
    expect(upstream.served[0]).toMatchObject({
      eventsSent: afterEvents,
      finished: false,
      aborted: false,
    });
  },
);

test("a cut of an unstreamed answer leaves half of its JSON", async () => {
  upstream.behave("m", { do: "cut", content: CONTENT });
  const asked = await ask(upstream, "m");
  expect(asked).toMatchObject({ status: 200, failed: true });
  expect(asked.text).toStartWith('{"id":"chatcmpl-');
  expect(() => JSON.parse(asked.text)).toThrow();
});

test("a stall in mid-stream delivers its events and then stays silent until the client leaves", async () => {
  upstream.behave("m", { do: "stall-after-events", afterEvents: 2 });
  const asked = await askStream(upstream, "m", { giveUp: (text) => framesOf(text).length === 2 });
  expect(asked).toMatchObject({ status: 200, failed: true });
  await upstream.until(([one]) => one?.aborted === true);
  expect(upstream.served[0]).toMatchObject({ eventsSent: 2, finished: false });
});

test("truncated JSON ends a stream and a whole answer without an error of the connection", async () => {
  upstream.behave("m", { do: "truncated-json" });
  for (const asked of [await ask(upstream, "m"), await askStream(upstream, "m")]) {
    expect(asked).toMatchObject({ status: 200, failed: false });
    expect(() => JSON.parse(asked.text.split("data: ").at(-1) ?? "")).toThrow();
  }
});

test("garbage, an error object and an error event come after the events that were asked for", async () => {
  for (const [name, needle] of [
    ["garbage-chunk", "data: <<<not json>>>\n\n"],
    ["error-in-stream", 'data: {"error":{"message":'],
    ["error-event", 'event: error\ndata: {"error":{"message":'],
  ] as const) {
    upstream.behave("m", { do: name, afterEvents: 2 });
    const asked = await askStream(upstream, "m");
    expect(asked).toMatchObject({ status: 200, failed: false });
    expect(asked.text).toContain(needle);
    expect(framesOf(asked.text.slice(0, asked.text.indexOf(needle)))).toHaveLength(2);
    const whole = await ask(upstream, "m");
    expect(whole).toMatchObject({
      status: 200,
      text: expect.stringMatching(/^(<<<not json>>>|\{"error")/),
    });
  }
});

test("a chunk without choices is one of the chunks, and a whole answer lacks them", async () => {
  upstream.behave("m", { do: "chunk-without-choices" });
  const frames = framesOf((await askStream(upstream, "m")).text);
  expect(frames.map((frame) => "choices" in frame).filter((has) => !has)).toHaveLength(1);
  expect("choices" in JSON.parse((await ask(upstream, "m")).text)).toBe(false);
});

test("finish reason, usage, content and [DONE] can be missing, and the finish can come twice", async () => {
  const seen: Record<string, unknown> = {};
  for (const name of [
    "complete",
    "no-finish-reason",
    "no-usage",
    "no-content",
    "no-done",
    "duplicate-finish",
  ] as const) {
    upstream.behave("m", { do: name, content: CONTENT });
    const { text } = await askStream(upstream, "m");
    const { content, finishReason, usage } = expectedOfStream(text);
    const finishes = text.split('"finish_reason":"stop"').length - 1;
    seen[name] = [
      content,
      finishReason,
      usage !== null,
      text.endsWith("data: [DONE]\n\n"),
      finishes,
    ];
    const whole = expectedOfWhole(JSON.parse((await ask(upstream, "m")).text));
    expect([whole.content, whole.finishReason, whole.usage !== null]).toEqual([
      content,
      finishReason,
      usage !== null,
    ]);
  }
  expect(seen).toEqual({
    complete: [CONTENT, "stop", true, true, 1],
    "no-finish-reason": [CONTENT, null, true, true, 0],
    "no-usage": [CONTENT, "stop", false, true, 1],
    "no-content": ["", "stop", true, true, 1],
    "no-done": [CONTENT, "stop", true, false, 1],
    "duplicate-finish": [CONTENT, "stop", true, true, 2],
  });
});

test("usage comes in every chunk", async () => {
  upstream.behave("m", { do: "usage-every-chunk", content: CONTENT });
  const usages = framesOf((await askStream(upstream, "m")).text).map((frame) => frame.usage);
  expect(usages.length).toBeGreaterThan(4);
  expect(new Set(usages.map((usage) => JSON.stringify(usage))).size).toBe(1);
  expect(usages[0]).toMatchObject({ completion_tokens: 9 });
});

test.each(Object.entries(ABSURD_USAGES))(
  "the absurd usage %s is sent as it is, streamed and whole",
  async (which, usage) => {
    upstream.behave("m", { do: "absurd-usage", which });
    const streamed = framesOf((await askStream(upstream, "m")).text).at(-1)?.usage;
    const whole = JSON.parse((await ask(upstream, "m")).text).usage;
    const sent = JSON.parse(JSON.stringify(usage).replaceAll(`"${OVERFLOWING_NUMBER}"`, "1e400"));
    expect([streamed, whole]).toEqual([sent, sent]);
    expect(upstream.totals().m?.promptTokens).toBeWithin(0, 21);
  },
);

test("a stream without end runs until the client leaves, slow or fast, and so does an endless JSON body", async () => {
  const enough = (text: string) => text.length > 100_000;
  upstream.enqueue("m", { do: "endless" }, { do: "endless" });
  expect((await askStream(upstream, "m", { giveUp: enough })).failed).toBe(true);
  expect((await ask(upstream, "m", { giveUp: enough })).failed).toBe(true);
  upstream.enqueue("m", { do: "endless", delayMs: 1 });
  expect(
    (await askStream(upstream, "m", { giveUp: (text) => framesOf(text).length > 5 })).failed,
  ).toBe(true);
  await upstream.until((list) => list.filter((one) => one.aborted).length === 3);
});

test("a client that reads nothing holds an endless stream back", async () => {
  upstream.behave("m", { do: "endless" });
  const response = await fetch(`${upstream.baseUrl}/chat/completions`, {
    method: "POST",
    body: '{"model":"m","messages":[],"stream":true}',
  });
  await upstream.until(([one]) => (one?.eventsSent ?? 0) > 10);
  // Other requests go on meanwhile; the turns they take are the time in which a flood would show.
  for (let i = 0; i < 200; i += 1) await ask(upstream, "other");
  expect(upstream.served[0]?.contentCharactersSent).toBeLessThan(32 * 1_048_576);
  await response.body?.cancel();
  await upstream.until(([one]) => one?.aborted === true);
});

test("a huge event is one event of a mebibyte of content", async () => {
  upstream.behave("m", { do: "huge-event" });
  const frames = framesOf((await askStream(upstream, "m")).text).map(
    (frame) => JSON.stringify(frame).length,
  );
  expect(frames.filter((length) => length > 1_048_576)).toHaveLength(1);
  expect(upstream.served[0]?.contentCharactersSent).toBe(1_048_576);
});

test("a slow drip gives the regular bytes in small pieces, streamed and whole", async () => {
  upstream.behave("m", { do: "slow-drip", pieceDelayMs: 1, pieceBytes: 64 });
  const streamed = await askStream(upstream, "m");
  expect(expectedOfStream(streamed.text).content).toBe("Echo: hello");
  expect(streamed.reads).toBeGreaterThan(3);
  const whole = await ask(upstream, "m");
  expect(expectedOfWhole(JSON.parse(whole.text)).content).toBe("Echo: hello");
  expect(whole.reads).toBeGreaterThan(3);
});

interface Frame {
  choices?: unknown[];
  usage?: unknown;
}

function framesOf(text: string): Frame[] {
  const whole = text.slice(0, text.lastIndexOf("\n\n") + 2);
  return whole
    .split("\n")
    .filter((line) => line.startsWith("data: {"))
    .map((line) => JSON.parse(line.slice("data: ".length)));
}
