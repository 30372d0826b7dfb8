import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { ModelPrices } from "../../src/lib/catalogue-model.ts";
import { NO_TOKENS, quantitiesOf } from "../../src/lib/usage.ts";
import { providerCostFemto, usageFigures } from "../../src/money/usage.ts";

const TEXT = {
  inputTokenFemto: 100n,
  outputTokenFemto: 1_000n,
  cachedInputTokenFemto: 10n,
  cacheWriteTokenFemto: 125n,
};

describe("what a call costs, by kind of use", () => {
  test.each([
    ["images", { images: 3 }, { imageFemto: 7n }, 21],
    ["characters", { characters: 11 }, { characterFemto: 5n }, 55],
    ["searches of the web", { webSearches: 2 }, { webSearchFemto: 10n }, 20],
    ["searches of files", { fileSearches: 2 }, { fileSearchFemto: 3n }, 6],
    ["whole seconds of sound", { durationMs: 2_000 }, { secondFemto: 3n }, 6],
    ["a part of a second, rounded up", { durationMs: 1_001 }, { secondFemto: 3n }, 4],
    ["a kind that the model has no price for", { images: 3 }, {}, 0],
  ] as const)("counts %s", (_, use, prices, cost) => {
    expect(providerCostFemto({ ...NO_TOKENS, ...use }, { ...TEXT, ...prices })).toBe(cost);
  });

  test("counts tokens of sound and images at their own prices, and at those of text without one", () => {
    const usage = {
      ...NO_TOKENS,
      promptTokens: 20,
      cachedPromptTokens: 5,
      completionTokens: 9,
      audioPromptTokens: 4,
      cachedAudioPromptTokens: 2,
      imageCompletionTokens: 3,
    };
    expect(providerCostFemto(usage, TEXT)).toBe(15 * 100 + 5 * 10 + 9 * 1_000);
    const prices = {
      ...TEXT,
      audioInputTokenFemto: 400n,
      cachedAudioInputTokenFemto: 40n,
      imageOutputTokenFemto: 700n,
    };
    expect(providerCostFemto(usage, prices)).toBe(
      11 * 100 + 4 * 400 + 3 * 10 + 2 * 40 + 6 * 1_000 + 3 * 700,
    );
  });

  test("counts tokens that a cache keeps for an hour at their own price", () => {
    const usage = {
      ...NO_TOKENS,
      promptTokens: 20,
      cachedPromptTokens: 5,
      cacheWriteTokens: 12,
      cacheWriteHourTokens: 4,
    };
    const cost = providerCostFemto(usage, { ...TEXT, cacheWriteHourTokenFemto: 200n });
    expect(cost).toBe(3 * 100 + 5 * 10 + 8 * 125 + 4 * 200);
    expect(quantitiesOf(usage)).toEqual({ cache_write_tokens: 12, cache_write_1h_tokens: 4 });
  });

  test("is exact beyond safe integers", () => {
    const count = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
    const price = fc.bigInt({ min: 0n, max: 10n ** 18n });
    fc.assert(
      fc.property(count, count, price, price, (images, durationMs, image, second) => {
        const prices: ModelPrices = { ...TEXT, imageFemto: image, secondFemto: second };
        const cost = providerCostFemto({ ...NO_TOKENS, images, durationMs }, prices);
        const wanted = BigInt(images) * image + (BigInt(durationMs) * second + 999n) / 1_000n;
        expect(BigInt(cost)).toBe(wanted);
      }),
    );
  });
});

test("the ledger keeps the uses that have no column by name, and nothing for a call of plain text", () => {
  expect(quantitiesOf({ ...NO_TOKENS, promptTokens: 9, completionTokens: 3 })).toBeNull();
  const usage = { ...NO_TOKENS, cacheWriteTokens: 4, images: 2, durationMs: 1_500, characters: 0 };
  expect(usageFigures(usage)).toEqual({
    promptTokens: 0,
    cachedPromptTokens: 0,
    completionTokens: 0,
    reasoningTokens: 0,
    quantities: { cache_write_tokens: 4, images: 2, duration_ms: 1_500 },
    estimated: false,
  });
});
