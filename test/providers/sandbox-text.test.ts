import { expect, test } from "bun:test";
import fc from "fast-check";
import { VirtualClock } from "../../src/lib/clock.ts";
import { MEDIA_PART_TOKENS, MESSAGE_OVERHEAD_TOKENS } from "../../src/sandbox/answer-shape.ts";
import { DEFAULT_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS } from "../../src/sandbox/request.ts";
import { countTokens, splitTokens } from "../../src/sandbox/tokens.ts";
import { startStopwatch } from "../support/stopwatch.ts";
import { complete, tool, user } from "./sandbox-calls.ts";

test("a text's tokens are the text again, and are counted without being made", () => {
  const text = fc.oneof(
    fc.string({ unit: "binary", maxLength: 60 }),
    fc.string({ unit: fc.constantFrom("a", " ", "\n", "😀", "\u3000", "é") }),
    fc.array(fc.constantFrom("\ud83d", "\ude00", " ", "ab")).map((parts) => parts.join("")),
  );
  fc.assert(
    fc.property(text, (text) => {
      const tokens = splitTokens(text);
      expect(tokens.join("")).toBe(text);
      expect(countTokens(text)).toBe(tokens.length);
      expect(tokens.length).toBeLessThanOrEqual(Buffer.byteLength(text));
      expect(splitTokens(text, 2)).toEqual(tokens.slice(0, 2));
    }),
    { numRuns: 2_000 },
  );
});

test("counting takes linear time, whatever the text", () => {
  for (const unit of [" ", "a", "a ", "\ud83d"]) {
    const text = unit.repeat(2_000_000);
    const elapsedMs = startStopwatch();
    countTokens(text);
    splitTokens(text, 10_000);
    expect(elapsedMs()).toBeLessThan(2_000);
  }
});

test("the answer repeats the last user message and says what it is", async () => {
  const { choices } = await complete({ messages: [user("no"), user("Grüße 👋🏽")] });
  const { content } = choices[0]!.message;
  expect(content).toStartWith("You said: Grüße 👋🏽\n\n");
  expect(content).toContain("not a language model");
  expect(choices[0]).toMatchObject({
    index: 0,
    finish_reason: "stop",
    message: { role: "assistant" },
  });
});

test("the text parts of a message are its text", async () => {
  const parts = [
    { type: "text", text: "one" },
    { type: "image_url", image_url: { url: "data:," } },
    { type: "text", text: "two" },
  ];
  const { choices } = await complete({ messages: [user(parts)] });
  expect(choices[0]?.message.content).toStartWith("You said: one\ntwo\n");
});

test.each([[[]], [undefined], [[null, 5, {}]], [[{ role: "system", content: "s" }]], ["x"]])(
  "messages without a user's text are answered too: %p",
  async (messages) => {
    expect((await complete({ messages })).choices[0]?.message.content).toStartWith(
      "You said nothing.",
    );
  },
);

test("asked to count, it counts", async () => {
  const { choices } = await complete({ messages: [user("Please count to 12.")] });
  expect(choices[0]?.message.content).toBe("1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12.");
});

test("an answer is never longer than its limit", async () => {
  const messages = [user("count to 999999999")];
  for (const [limit, expected] of [
    [undefined, DEFAULT_OUTPUT_TOKENS],
    [1, 1],
    [7, 7],
    [MAX_OUTPUT_TOKENS + 1, MAX_OUTPUT_TOKENS],
  ] as const) {
    const { choices, usage } = await complete({ messages, max_tokens: limit });
    expect(choices[0]?.finish_reason).toBe("length");
    expect(usage.completion_tokens).toBe(expected);
    expect(countTokens(choices[0]?.message.content ?? "")).toBe(expected);
  }
  const named = await complete({ messages, max_completion_tokens: 3 });
  expect(named.usage.completion_tokens).toBe(3);
});

test("an answer that just fits its limit is whole", async () => {
  const whole = await complete({ messages: [user("count to 9")] });
  const limit = whole.usage.completion_tokens;
  const same = await complete({ messages: [user("count to 9")], max_tokens: limit });
  expect(same.choices).toEqual(whole.choices);
  const short = await complete({ messages: [user("count to 9")], max_tokens: limit - 1 });
  expect(short.choices[0]?.finish_reason).toBe("length");
});

test.each([
  [", 5", "1, 2, 3, 4"],
  [["x", ", 4", ", 3"], "1, 2"],
  [["", 7, null], "1, 2, 3, 4, 5, 6, 7, 8, 9."],
  ["1", ""],
])("stop %p ends the text just before it", async (stop, content) => {
  const { choices, usage } = await complete({ messages: [user("count to 9")], stop });
  expect(choices[0]).toMatchObject({ finish_reason: "stop", message: { content } });
  expect(usage.completion_tokens).toBe(countTokens(content));
});

test("a limit reached before the stop sequence decides", async () => {
  const body = { messages: [user("count to 9")], stop: ", 9", max_tokens: 2 };
  const { choices } = await complete(body);
  expect(choices[0]?.finish_reason).toBe("length");
});

test("n choices are n times the tokens", async () => {
  const one = await complete({ messages: [user("hi")] });
  const { choices, usage } = await complete({ messages: [user("hi")], n: 3 });
  expect(choices.map((choice) => choice.index)).toEqual([0, 1, 2]);
  expect(usage.completion_tokens).toBe(3 * one.usage.completion_tokens);
  expect(usage.prompt_tokens).toBe(one.usage.prompt_tokens);
});

test("usage counts messages, media and tools by stated rules, and never more than their bytes", async () => {
  const image = { type: "image_url", image_url: { url: "data:," } };
  const tools = [tool("look")];
  const { usage } = await complete({
    messages: [
      { role: "system", content: "four" },
      user([{ type: "text", text: "four more" }, image]),
    ],
    tools,
  });
  const texts = 1 + 2 + MEDIA_PART_TOKENS + countTokens(JSON.stringify(tools));
  expect(usage.prompt_tokens).toBe(2 * MESSAGE_OVERHEAD_TOKENS + texts);
  expect(usage.total_tokens).toBe(usage.prompt_tokens + usage.completion_tokens);
  expect(MEDIA_PART_TOKENS).toBeLessThanOrEqual(JSON.stringify({ type: "f" }).length);
});

test("reasoning comes by effort, is part of the completion tokens, and counts against the limit", async () => {
  const messages = [user("hi")];
  const lengths: number[] = [];
  for (const effort of ["none", "low", "medium", "high"]) {
    const { choices, usage } = await complete({ messages, reasoning: { effort } });
    const reasoning = choices[0]?.message.reasoning ?? "";
    lengths.push(reasoning.length);
    expect(usage.completion_tokens_details.reasoning_tokens).toBe(countTokens(reasoning));
    expect(usage.completion_tokens).toBe(
      countTokens(reasoning) + countTokens(choices[0]?.message.content ?? ""),
    );
  }
  expect(lengths).toEqual([...new Set(lengths)].sort((a, b) => a - b));
  expect(lengths[0]).toBe(0);
  const short = await complete({ messages, include_reasoning: true, max_tokens: 4 });
  expect(short.choices[0]).toMatchObject({ finish_reason: "length", message: { content: "" } });
  expect(short.usage.completion_tokens_details.reasoning_tokens).toBe(4);
});

test("reasoning that is excluded is counted and not shown", async () => {
  const reasoning = { effort: "high", exclude: true };
  const { choices, usage } = await complete({ messages: [user("hi")], reasoning });
  expect(choices[0]?.message.reasoning).toBeUndefined();
  expect(usage.completion_tokens_details.reasoning_tokens).toBeGreaterThan(0);
});

test("without reasoning asked for there is none", async () => {
  for (const body of [{}, { include_reasoning: false }, { reasoning: {} }]) {
    const { choices, usage } = await complete({ messages: [user("hi")], ...body });
    expect(choices[0]?.message).not.toHaveProperty("reasoning");
    expect(usage.completion_tokens_details.reasoning_tokens).toBe(0);
  }
});

test("the same request gets the same answer but for the time", async () => {
  const body = { messages: [user("hi")], tools: [tool("a")], reasoning: { effort: "low" } };
  const [early, late] = [new VirtualClock(1_000_000), new VirtualClock(2_000_000)];
  const first = await complete(body, { clock: early });
  const second = await complete(body, { clock: late });
  expect([first.created, second.created]).toEqual([1_000, 2_000]);
  expect({ ...first, created: 0 }).toEqual({ ...second, created: 0 });
});

test("the dated model answers like chat, and both may be named with their author", async () => {
  const expected = (await complete({ messages: [user("hi")] })).choices;
  for (const model of ["chat-2026-01-01", "sandbox/chat", "sandbox/chat-2026-01-01"]) {
    const { choices, model: named } = await complete({ messages: [user("hi")] }, { model });
    expect(choices).toEqual(expected);
    expect(named).toBe(model);
  }
});
