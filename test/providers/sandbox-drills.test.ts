import { describe, expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { sandboxModels } from "../../src/providers/catalogue/sandbox-models.ts";
import { ProviderFailure } from "../../src/providers/interface.ts";
import {
  DRILL_RETRY_AFTER_MS,
  FIRST_TOKEN_DELAY_MS,
  SLOW_TOKEN_DELAY_MS,
  STALL_MS,
  TOKENS_BEFORE_BREAK,
} from "../../src/sandbox/drills.ts";
import { bytesIn, failureOf, textOf } from "./openai-adapter.ts";
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

/** A clock of which a test can await that a wait on it has begun. */
class ObservedClock extends VirtualClock {
  /** Waits that have begun and neither ended nor been given up. */
  pending = 0;
  #begun = 0;
  #watchers: (() => void)[] = [];

  override after(delayMs: number, run: () => void): () => void {
    let isOver = false;
    const end = () => {
      if (!isOver) this.pending--;
      isOver = true;
    };
    const stop = super.after(delayMs, () => {
      end();
      run();
    });
    this.pending++;
    this.#begun++;
    for (const notify of this.#watchers.splice(0)) notify();
    return () => {
      end();
      stop();
    };
  }

  async waitsBegun(count: number): Promise<void> {
    while (this.#begun < count) {
      await new Promise<void>((resolve) => this.#watchers.push(resolve));
    }
  }
}

async function streamOf(
  model: string,
  options: { clock?: VirtualClock; signal?: AbortSignal } = {},
) {
  const answer = await sandboxCall(COUNT, { model, stream: true, ...options });
  const reader = bytesIn(answer);
  return {
    cancel: () => reader.cancel(),
    /** The next event; undefined at the end. */
    async next(): Promise<string | undefined> {
      const { done, value } = await reader.read();
      return done ? undefined : new TextDecoder().decode(value);
    },
  };
}

test("slow waits before every token on the clock, and an abort ends the wait", async () => {
  const clock = new ObservedClock();
  const startMs = clock.nowMs();
  const controller = new AbortController();
  const stream = await streamOf("slow", { clock, signal: controller.signal });
  expect(await stream.next()).toContain('"role"');
  for (let token = 1; token <= 3; token++) {
    const next = stream.next();
    await clock.waitsBegun(token);
    clock.advance(SLOW_TOKEN_DELAY_MS - 1);
    expect(await Promise.race([next, Promise.resolve("waiting")])).toBe("waiting");
    clock.advance(1);
    expect(await next).toContain('"content"');
    expect(clock.nowMs() - startMs).toBe(token * SLOW_TOKEN_DELAY_MS);
  }
  const waiting = stream.next();
  await clock.waitsBegun(4);
  controller.abort();
  await expect(waiting).rejects.toMatchObject({ kind: "aborted" });
});

test("slow-first-token waits before its first token alone", async () => {
  const clock = new ObservedClock();
  const stream = await streamOf("slow-first-token", { clock });
  expect(await stream.next()).toContain('"role"');
  const first = stream.next();
  await clock.waitsBegun(1);
  clock.advance(FIRST_TOKEN_DELAY_MS - 1);
  expect(await Promise.race([first, Promise.resolve("waiting")])).toBe("waiting");
  clock.advance(1);
  expect(await first).toContain('"content"');
  while ((await stream.next()) !== undefined);
  expect(clock.pending).toBe(0);
});

test.each([
  ["slow", (tokens: number) => tokens * SLOW_TOKEN_DELAY_MS],
  ["slow-first-token", () => FIRST_TOKEN_DELAY_MS],
])("%s without a stream takes as long as its tokens", async (model, tookMs) => {
  const clock = new VirtualClock();
  const tokens = (await complete(COUNT)).usage.completion_tokens;
  let isAnswered = false;
  const answer = complete(COUNT, { model, clock }).then((completion) => {
    isAnswered = true;
    return completion;
  });
  clock.advance(tookMs(tokens) - 1);
  await Promise.resolve();
  expect(isAnswered).toBe(false);
  clock.advance(1);
  expect((await answer).usage.completion_tokens).toBe(tokens);
});

describe.each(["slow", "slow-first-token", "stall"])("%s keeps no timer", (model) => {
  test("once its stream is cancelled", async () => {
    const clock = new ObservedClock();
    const stream = await streamOf(model, { clock });
    await untilPending(clock, stream.next);
    await stream.cancel();
    expect(clock.pending).toBe(0);
  });

  test("once its stream's call is aborted", async () => {
    const clock = new ObservedClock();
    const controller = new AbortController();
    const stream = await streamOf(model, { clock, signal: controller.signal });
    await untilPending(clock, stream.next);
    controller.abort();
    expect(clock.pending).toBe(0);
  });

  test("once its call is aborted", async () => {
    const clock = new ObservedClock();
    const controller = new AbortController();
    const failed = failureOf(sandboxCall(COUNT, { model, clock, signal: controller.signal }));
    await clock.waitsBegun(1);
    controller.abort();
    expect((await failed).kind).toBe("aborted");
    expect(clock.pending).toBe(0);
  });
});

/** Reads until a wait has begun that the clock has to end. */
async function untilPending(clock: ObservedClock, next: () => Promise<unknown>): Promise<void> {
  while (clock.pending === 0) {
    const reading = next();
    reading.catch(() => {});
    await Promise.race([reading, clock.waitsBegun(1)]);
  }
}

describe.each([
  ["cut", 0, "unavailable"],
  ["stall", STALL_MS, "timeout"],
] as const)("%s", (model, silenceMs, kind) => {
  test(`breaks off after a few tokens and ${silenceMs} ms`, async () => {
    const clock = new ObservedClock();
    const stream = await streamOf(model, { clock });
    let text = "";
    const readToEnd = async () => {
      for (let piece = await stream.next(); piece !== undefined; piece = await stream.next()) {
        text += piece;
      }
    };
    const reading = failureOf(readToEnd() as never);
    if (silenceMs > 0) {
      await clock.waitsBegun(1);
      clock.advance(silenceMs - 1);
      expect(clock.pending).toBe(1);
      clock.advance(1);
    }
    expect((await reading).kind).toBe(kind);
    expect(text.match(/"content":"[^"]/g)).toHaveLength(TOKENS_BEFORE_BREAK);
    expect(text).not.toContain("[DONE]");
  });

  test("without a stream fails after the same silence", async () => {
    const clock = new ObservedClock();
    const failed = failureOf(sandboxCall(COUNT, { model, clock }));
    if (silenceMs > 0) {
      await clock.waitsBegun(1);
      clock.advance(silenceMs);
    }
    expect((await failed).kind).toBe(kind);
  });
});

test.each([
  ["error-429", { kind: "rate_limited", status: 429, retryAfterMs: DRILL_RETRY_AFTER_MS }],
  ["error-500", { kind: "unavailable", status: 500 }],
  ["overloaded", { kind: "unavailable", status: 529 }],
  ["other", { kind: "misconfigured", status: 404 }],
])("%s fails as it is named, streamed or not", async (model, wanted) => {
  for (const stream of [false, true]) {
    expect(await failureOf(sandboxCall(COUNT, { model, stream }))).toMatchObject(wanted);
  }
});

test("garbage answers what is no JSON, streamed or not", async () => {
  expect((await failureOf(sandboxCall(COUNT, { model: "garbage" }))).kind).toBe("unavailable");
  const text = await textOf(await sandboxCall(COUNT, { model: "garbage", stream: true }));
  expect(() => JSON.parse(text.slice("data: ".length))).toThrow();
});

describe("refusal", () => {
  test("refuses whatever is asked for, and is billed for what it says", async () => {
    const asked = { ...COUNT, tools: [tool("a")], response_format: { type: "json_object" } };
    const whole = await complete(asked, { model: "refusal" });
    const { message, finish_reason } = whole.choices[0]!;
    expect([message.content, finish_reason]).toEqual([null, "content_filter"]);
    expect(message.refusal).toContain("refuses");
    expect(whole.usage.completion_tokens).toBePositive();
    const chunks = await streamed(
      { ...asked, stream_options: { include_usage: true } },
      { model: "refusal" },
    );
    expect(assembled(chunks)).toEqual(essentials(whole));
    expect(chunks.at(-1)!.usage).toEqual(whole.usage);
  });

  test("obeys max_tokens", async () => {
    const { usage } = await complete({ ...COUNT, max_tokens: 2 }, { model: "refusal" });
    expect(usage.completion_tokens).toBe(2);
  });
});

describe("reasoning", () => {
  test("reasons without being asked to, and otherwise answers as chat does", async () => {
    const plain = await complete(COUNT);
    const reasoned = await complete(COUNT, { model: "reasoning" });
    const { message } = reasoned.choices[0]!;
    expect(message.reasoning).toBeString();
    expect(message.content).toBe(plain.choices[0]!.message.content);
    const { completion_tokens: tokens, completion_tokens_details: details } = reasoned.usage;
    expect(details.reasoning_tokens).toBePositive();
    expect(tokens).toBe(plain.usage.completion_tokens + details.reasoning_tokens);
    expect(assembled(await streamed(COUNT, { model: "reasoning" }))).toEqual(essentials(reasoned));
  });

  test("takes an effort, and hides what is excluded", async () => {
    const of = (options: object) =>
      complete({ ...COUNT, ...options }, { model: "reasoning" }).then(({ choices, usage }) => ({
        isShown: choices[0]!.message.reasoning !== undefined,
        tokens: usage.completion_tokens_details.reasoning_tokens,
      }));
    expect(await of({ reasoning_effort: "none" })).toEqual({ isShown: false, tokens: 0 });
    const hidden = await of({ reasoning: { exclude: true } });
    expect(hidden).toEqual({ isShown: false, tokens: (await of({})).tokens });
    expect((await of({ reasoning_effort: "high" })).tokens).toBeGreaterThan(hidden.tokens);
  });
});

test("every chat model of the catalogue is one that the sandbox has", async () => {
  const chats = sandboxModels().filter(({ category }) => category === "chat");
  for (const { endpoints } of chats) {
    const { model } = endpoints[0]!;
    const call = sandboxCall(COUNT, { model, stream: true }).catch((failure: unknown) => failure);
    const answered = await call;
    if (answered instanceof ProviderFailure) expect(answered.status).not.toBe(404);
  }
});
