import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  highestImageFemto,
  imagePriceFemto,
  mostImageTokens,
} from "../../src/billing/ledger/image-prices.ts";
import { providerCostFemto, toolCostFemto, usageFigures } from "../../src/billing/ledger/usage.ts";
import type { ModelPrices } from "../../src/lib/catalogue-model.ts";
import { NO_TOKENS, quantitiesOf, usageOfCalls } from "../../src/lib/usage.ts";

const TEXT = {
  inputTokenFemto: 100n,
  outputTokenFemto: 1_000n,
  cachedInputTokenFemto: 10n,
  cacheWriteTokenFemto: 125n,
};

/** Of the tokens those of "draft" are the fewest. */
const VARIED: ModelPrices = {
  ...TEXT,
  imageFemto: 9n,
  imageVariants: [
    { size: "M", quality: "standard", imageFemto: 4n, maxTokens: 50 },
    { size: "L", quality: "standard", imageFemto: 8n, maxTokens: 60 },
    { size: "M", quality: "hd", imageFemto: 7n, maxTokens: 70 },
    { size: "L", quality: "hd", imageFemto: 12n, maxTokens: 80 },
    { quality: "draft", imageFemto: 1n, maxTokens: 10 },
  ],
};

describe("what several calls cost together", () => {
  const prices: ModelPrices = {
    ...TEXT,
    webSearchFemto: 7n,
    longPrompt: {
      ...{ beyondTokens: 100, inputTokenFemto: 200n, outputTokenFemto: 2_000n },
      ...{ cachedInputTokenFemto: 20n, cacheWriteTokenFemto: 250n },
    },
  };
  const call = fc.record({
    promptTokens: fc.integer({ min: 10, max: 200 }),
    cachedPromptTokens: fc.integer({ min: 0, max: 5 }),
    cacheWriteTokens: fc.integer({ min: 0, max: 5 }),
    completionTokens: fc.integer({ min: 0, max: 50 }),
    reasoningTokens: fc.constant(0),
    estimated: fc.boolean(),
  });

  test("is what each costs by itself, whatever their prompts come to", () => {
    fc.assert(
      fc.property(
        fc.array(call, { minLength: 1, maxLength: 6 }),
        fc.nat(3),
        (calls, webSearches) => {
          const each = calls.map((usage) => BigInt(providerCostFemto(usage, prices)));
          const sum = each.reduce((total, cost) => total + cost, BigInt(webSearches) * 7n);
          const usage = usageOfCalls(calls.slice(0, -1), calls.at(-1)!, { webSearches });
          expect(BigInt(providerCostFemto(usage, prices))).toBe(sum);
          expect(usage.promptTokens).toBe(calls.reduce((all, one) => all + one.promptTokens, 0));
          expect(usage.estimated).toBe(calls.some(({ estimated }) => estimated));
        },
      ),
    );
  });
});

describe("what a call costs, by kind of use", () => {
  test.each([
    ["images", { images: 3 }, { imageFemto: 7n }, 21],
    ["characters", { characters: 11 }, { characterFemto: 5n }, 55],
    ["searches of the web", { webSearches: 2 }, { webSearchFemto: 10n }, 20],
    ["searches of files", { fileSearches: 2 }, { fileSearchFemto: 3n }, 6],
    [
      "sound that is shorter than the least that is billed",
      { durationMs: 400 },
      { secondFemto: 3n, leastSoundFemto: 30n },
      30,
    ],
    [
      "sound that is longer than the least",
      { durationMs: 11_000 },
      { secondFemto: 3n, leastSoundFemto: 30n },
      33,
    ],
    [
      "sound whose speakers are told apart",
      { durationMs: 2_000, speakersMs: 2_000 },
      { secondFemto: 3n, speakersSecondFemto: 5n },
      16,
    ],
    ["whole seconds of sound", { durationMs: 2_000 }, { secondFemto: 3n }, 6],
    ["a part of a second, rounded up", { durationMs: 1_001 }, { secondFemto: 3n }, 4],
    ["a kind that the model has no price for", { images: 3 }, {}, 0],
  ] as const)("counts %s", (_, use, prices, cost) => {
    expect(providerCostFemto({ ...NO_TOKENS, ...use }, { ...TEXT, ...prices })).toBe(cost);
  });

  test("tells what of it the gateway's own tools cost", () => {
    const usage = { ...NO_TOKENS, promptTokens: 20, webSearches: 2, fileSearches: 1 };
    const prices = { ...TEXT, webSearchFemto: 5_000_000_000_000n, fileSearchFemto: 7n };
    expect(toolCostFemto(usage, prices)).toBe(10_000_000_000_007);
    expect(providerCostFemto(usage, prices)).toBe(10_000_000_000_007 + 20 * 100);
    // What a provider has searched for is its own bill.
    expect(toolCostFemto(usage, undefined)).toBe(0);
    expect(toolCostFemto(NO_TOKENS, prices)).toBe(0);
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
    // Behind the step all tokens cost more, those of an hour too where that has a price.
    const longPrompt = { ...TEXT, beyondTokens: 10 };
    const stepped = (hour?: { cacheWriteHourTokenFemto: bigint }) =>
      providerCostFemto(usage, {
        ...TEXT,
        cacheWriteHourTokenFemto: 200n,
        longPrompt: { ...longPrompt, ...hour },
      });
    expect(stepped({ cacheWriteHourTokenFemto: 400n })).toBe(3 * 100 + 5 * 10 + 8 * 125 + 4 * 400);
    expect(stepped()).toBe(cost);
  });

  test("counts pixels of images that are made, and images that come with the request", () => {
    const usage = { ...NO_TOKENS, images: 2, imagePixels: 2_000, inputImages: 3 };
    const prices = { ...TEXT, imagePixelFemto: 5n, inputImageFemto: 70n };
    expect(providerCostFemto(usage, prices)).toBe(2_000 * 5 + 3 * 70);
    expect(quantitiesOf(usage)).toEqual({ images: 2, image_pixels: 2_000, input_images: 3 });
  });

  test.each([
    ["the variant that fits", { size: "L", quality: "hd" }, 12],
    ["one of any size", { size: "XL", quality: "draft" }, 1],
    ["the default's where nothing is known", {}, 4],
    ["the default's of the size", { size: "L" }, 8],
    ["the default's of the quality", { quality: "hd" }, 7],
    ["that of no variant where none fits", { size: "XL", quality: "hd" }, 9],
  ] as const)("counts images at the price of %s", (_, imageVariant, each) => {
    const usage = { ...NO_TOKENS, images: 3, imageVariant };
    expect(providerCostFemto(usage, { ...TEXT, ...VARIED })).toBe(3 * each);
  });

  test.each([
    ["settled by what is asked", { size: "L", quality: "hd" }, 12, 80],
    ["the dearest where nothing is asked", {}, 12, 80],
    ["the dearest of the size", { size: "M" }, 9, 70],
    ["the dearest of the quality", { quality: "standard" }, 9, 60],
    ["settled by the quality alone", { quality: "draft" }, 1, 10],
    ["of no variant", { size: "XL", quality: "hd" }, 9, undefined],
  ] as const)("holds for an image that is %s", (_, asked, femto, tokens) => {
    expect(highestImageFemto(VARIED, asked)).toBe(BigInt(femto));
    expect(mostImageTokens(VARIED, asked)).toBe(tokens);
  });

  test("holds at least what any image costs that may come", () => {
    const name = fc.constantFrom("a", "b", "c");
    const known = fc.record({ size: name, quality: name }, { requiredKeys: [] });
    const variant = fc.record(
      { size: name, quality: name, imageFemto: fc.bigInt({ min: 0n, max: 9n }) },
      { requiredKeys: [] },
    );
    const table = fc.record({
      imageFemto: fc.bigInt({ min: 0n, max: 9n }),
      imageVariants: fc.array(variant),
    });
    fc.assert(
      fc.property(table, known, known, (prices, asked, more) => {
        const held = highestImageFemto(prices, asked);
        expect(held).toBeGreaterThanOrEqual(imagePriceFemto(prices, { ...more, ...asked }));
      }),
    );
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
