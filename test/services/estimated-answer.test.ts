import { expect, test } from "bun:test";
import { tokensOfBytes } from "../../src/lib/token-estimate.ts";
import { normaliseCompletion } from "../../src/services/chat/normalise-completion.ts";

test.each<[string, Record<string, unknown>]>([
  ["what it says", { content: "eight by" }],
  ["what it refuses with", { content: null, refusal: "eight by" }],
  ["what it reasons", { content: null, reasoning: "eight by" }],
])("an answer without usage is counted by %s", (_, message) => {
  const { estimatedTokens } = normaliseCompletion(
    { choices: [{ message, finish_reason: "stop" }] },
    { hidesReasoning: false, nowSeconds: 0 },
  );
  expect(estimatedTokens).toBe(tokensOfBytes(8));
});
