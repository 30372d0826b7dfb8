import { expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import {
  CUT_AFTER_TOKENS,
  DRILL_RETRY_AFTER_MS,
  SLOW_TOKEN_DELAY_MS,
} from "../../src/providers/sandbox/chat-provider.ts";
import { failureOf, textOf } from "./openai-adapter.ts";
import {
  assembled,
  complete,
  essentials,
  sandboxCall,
  streamed,
  tool,
  user,
} from "./sandbox-calls.ts";

const COUNT = { messages: [user("count to 20")] };

test.each([
  ["text", {}],
  ["a limit", { max_tokens: 5 }],
  ["a stop sequence", { stop: "7" }],
  ["an immediate stop", { stop: "1" }],
  ["several choices", { n: 3 }],
  ["reasoning", { reasoning: { effort: "high" } }],
  ["hidden reasoning", { reasoning: { effort: "high", exclude: true } }],
  ["tool calls", { tools: [tool("a", { properties: { x: {} } }), tool("b")] }],
  ["cut tool calls", { tools: [tool("a", { properties: { x: {} } })], max_tokens: 2 }],
  [
    "a schema",
    { response_format: { type: "json_schema", json_schema: { schema: { type: "array" } } } },
  ],
] as const)("a stream with %s says the same as the completion", async (_what, options) => {
  const whole = await complete({ ...COUNT, ...options });
  const chunks = await streamed({
    ...COUNT,
    ...options,
    stream_options: { include_usage: true },
  });
  expect(assembled(chunks)).toEqual(essentials(whole));
  expect(chunks.at(-1)).toMatchObject({ choices: [], usage: whole.usage });
});

test("the role is only on the first chunk, the finish reason on the last, and each token has a chunk", async () => {
  const chunks = await streamed({ ...COUNT, stream_options: {} });
  const [first, ...rest] = chunks.map((chunk) => chunk.choices[0]!);
  expect(first).toMatchObject({ delta: { role: "assistant", content: "" }, finish_reason: null });
  expect(rest.some((choice) => "role" in choice.delta)).toBe(false);
  expect(rest.pop()).toMatchObject({ delta: {}, finish_reason: "stop" });
  expect(rest.every((choice) => choice.finish_reason === null)).toBe(true);
  expect(rest.length).toBe((await complete(COUNT)).usage.completion_tokens);
});

test("all chunks have the same head", async () => {
  const clock = new VirtualClock(5_000);
  const chunks = await streamed({ ...COUNT, stream_options: {} }, { clock });
  for (const { choices: _, ...head } of chunks) {
    expect(head as unknown).toEqual({
      id: "chatcmpl-req_1",
      object: "chat.completion.chunk",
      created: 5,
      model: "chat",
    });
  }
});

test("a tool call's id and name come first, its arguments in pieces", async () => {
  const parameters = { type: "object", properties: { city: { type: "string" } } };
  const chunks = await streamed({ messages: [user("hi")], tools: [tool("look", parameters)] });
  const deltas = chunks.flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? []);
  expect(deltas[0]).toMatchObject({ index: 0, function: { name: "look", arguments: "" } });
  expect(deltas[0]?.id).toStartWith("call_");
  expect(deltas.length).toBeGreaterThan(2);
  expect(deltas.slice(1).every((delta) => delta.id === undefined)).toBe(true);
  const text = deltas.map((delta) => delta.function.arguments).join("");
  expect(JSON.parse(text)).toEqual({ city: "example" });
});

test("without include_usage there is no usage chunk", async () => {
  const chunks = await streamed({ ...COUNT, stream_options: {} });
  expect(chunks.some((chunk) => "usage" in chunk)).toBe(false);
});

test("a stream makes no more than is read", async () => {
  const answer = await sandboxCall({ messages: [user("count to 4000")] }, { stream: true });
  if (answer.kind !== "stream") throw new Error("no stream");
  const reader = answer.body.getReader();
  const { value } = await reader.read();
  expect(new TextDecoder().decode(value).match(/data: /g)).toHaveLength(1);
  await reader.cancel();
  expect((await reader.read()).done).toBe(true);
});

test("an aborted stream ends with a failure of kind aborted", async () => {
  const controller = new AbortController();
  const { signal } = controller;
  const answer = await sandboxCall(COUNT, { stream: true, signal });
  if (answer.kind !== "stream") throw new Error("no stream");
  const reader = answer.body.getReader();
  await reader.read();
  controller.abort();
  const readToEnd = async () => {
    while (!(await reader.read()).done);
  };
  await expect(readToEnd()).rejects.toMatchObject({ kind: "aborted" });
  expect((await failureOf(sandboxCall(COUNT, { signal }))).kind).toBe("aborted");
});

/** A clock of which a test can await that a wait on it has begun. */
class ObservedClock extends VirtualClock {
  #begun = 0;
  #watchers: (() => void)[] = [];

  override after(delayMs: number, run: () => void): () => void {
    const stop = super.after(delayMs, run);
    this.#begun++;
    for (const notify of this.#watchers.splice(0)) notify();
    return stop;
  }

  async waitsBegun(count: number): Promise<void> {
    while (this.#begun < count) {
      await new Promise<void>((resolve) => this.#watchers.push(resolve));
    }
  }
}

test("slow waits before every token on the clock, and an abort ends the wait", async () => {
  const clock = new ObservedClock();
  const startMs = clock.nowMs();
  const controller = new AbortController();
  const options = { model: "slow", stream: true, clock, signal: controller.signal };
  const answer = await sandboxCall(COUNT, options);
  if (answer.kind !== "stream") throw new Error("no stream");
  const reader = answer.body.getReader();
  expect(new TextDecoder().decode((await reader.read()).value)).toContain('"role"');
  for (let token = 1; token <= 3; token++) {
    const next = reader.read();
    await clock.waitsBegun(token);
    clock.advance(SLOW_TOKEN_DELAY_MS - 1);
    expect(await Promise.race([next, Promise.resolve("waiting")])).toBe("waiting");
    clock.advance(1);
    expect(new TextDecoder().decode((await next).value)).toContain('"content"');
    expect(clock.nowMs() - startMs).toBe(token * SLOW_TOKEN_DELAY_MS);
  }
  const waiting = reader.read();
  await clock.waitsBegun(4);
  controller.abort();
  await expect(waiting).rejects.toMatchObject({ kind: "aborted" });
});

test("slow without a stream takes as long as its tokens", async () => {
  const clock = new VirtualClock();
  const tokens = (await complete(COUNT)).usage.completion_tokens;
  let isAnswered = false;
  const answer = complete(COUNT, { model: "slow", clock }).then((completion) => {
    isAnswered = true;
    return completion;
  });
  clock.advance(tokens * SLOW_TOKEN_DELAY_MS - 1);
  await Promise.resolve();
  expect(isAnswered).toBe(false);
  clock.advance(1);
  expect((await answer).usage.completion_tokens).toBe(tokens);
});

test("a slow stream that is cancelled leaves no timer behind", async () => {
  const begun = Promise.withResolvers<void>();
  let pending = 0;
  const clock = {
    nowMs: () => 0,
    after: () => {
      pending++;
      begun.resolve();
      return () => pending--;
    },
  };
  const answer = await sandboxCall(COUNT, { model: "slow", stream: true, clock });
  if (answer.kind !== "stream") throw new Error("no stream");
  const reader = answer.body.getReader();
  await reader.read();
  await begun.promise;
  expect(pending).toBe(1);
  await reader.cancel();
  expect(pending).toBe(0);
});

test("cut breaks off after a few tokens, and without a stream is of kind unavailable", async () => {
  const answer = await sandboxCall(COUNT, { model: "cut", stream: true });
  if (answer.kind !== "stream") throw new Error("no stream");
  const reader = answer.body.getReader();
  let text = "";
  const readToEnd = async () => {
    for (;;) {
      const piece = await reader.read();
      if (piece.done) return;
      text += new TextDecoder().decode(piece.value);
    }
  };
  await expect(readToEnd()).rejects.toMatchObject({ kind: "unavailable" });
  expect(text.match(/"content":"[^"]/g)).toHaveLength(CUT_AFTER_TOKENS);
  expect(text).not.toContain("[DONE]");
  expect((await failureOf(sandboxCall(COUNT, { model: "cut" }))).kind).toBe("unavailable");
});

test("the drills fail as they are named, streamed or not", async () => {
  for (const stream of [false, true]) {
    expect(await failureOf(sandboxCall(COUNT, { model: "error-429", stream }))).toMatchObject({
      kind: "rate_limited",
      status: 429,
      retryAfterMs: DRILL_RETRY_AFTER_MS,
    });
    expect(await failureOf(sandboxCall(COUNT, { model: "error-500", stream }))).toMatchObject({
      kind: "unavailable",
      status: 500,
    });
    expect((await failureOf(sandboxCall(COUNT, { model: "other", stream }))).kind).toBe(
      "misconfigured",
    );
  }
});

test("a stream without a reader of usage ends with [DONE]", async () => {
  const answer = await sandboxCall({}, { stream: true });
  expect(await textOf(answer)).toEndWith("data: [DONE]\n\n");
});
