import { expect, test } from "bun:test";
import { tokensOfBytes } from "../../src/lib/token-estimate.ts";
import { finishReason } from "../../src/providers/openai/chat/provider-content.ts";
import { normaliseCompletion } from "../../src/providers/openai/chat/raw-answers.ts";

test.each<[string, Record<string, unknown>]>([
  ["what it says", { content: "eight by" }],
  ["what it refuses with", { content: null, refusal: "eight by" }],
  ["what it reasons", { content: null, reasoning: "eight by" }],
])("an answer without usage is counted by %s", (_, message) => {
  const { estimatedTokens } = normaliseCompletion(
    { choices: [{ message, finish_reason: "stop" }] },
    "req_1",
    false,
    0,
  );
  expect(estimatedTokens).toBe(tokensOfBytes(8));
});

test.each([
  ["sensitive", "content_filter"],
  ["model_context_window_exceeded", "length"],
] as const)("a finish reason of %s is %s", (reason, told) => {
  expect(finishReason(reason)).toBe(told);
});

test.each(["constructor", "toString", "STOP", "some new word"])(
  "a finish reason of %s counts as a plain stop",
  (reason) => {
    expect(finishReason(reason)).toBe("stop");
  },
);
