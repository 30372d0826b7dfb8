import { expect, test } from "bun:test";
import { tokensOfBytes, tokensOfDelta, tokensOfPrompt } from "../../src/lib/token-estimate.ts";

test("bytes are counted at four a token, and the rest as one more", () => {
  expect([0, 1, 4, 5, 8, 400].map(tokensOfBytes)).toEqual([0, 1, 1, 2, 2, 100]);
});

test("a small piece of a stream is one token, and nothing is none", () => {
  expect([0, 1, 12, 13, 400].map(tokensOfDelta)).toEqual([0, 1, 1, 4, 100]);
});

test("each message of a prompt has its own overhead", () => {
  expect(tokensOfPrompt(0, 1)).toBe(4);
  expect(tokensOfPrompt(40, 3)).toBe(22);
});
