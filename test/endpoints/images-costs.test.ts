import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { providerCostFemto } from "../../src/billing/ledger/usage.ts";
import { imagesBound, imagesUsage } from "../../src/inference/endpoints/images/cost-bound.ts";
import { factsOf } from "../../src/inference/endpoints/images/decoded-images.ts";
import {
  type AcceptedImages,
  acceptGeneration,
} from "../../src/inference/endpoints/images/request.ts";
import type { ModelPrices, ModelTerms } from "../../src/lib/catalogue-model.ts";
import { femtoFromUsd } from "../../src/lib/money.ts";
import { NO_TOKENS, type Usage } from "../../src/lib/usage.ts";
import type { ImageFacts } from "../../src/providers/media.ts";
import { mediaFile } from "../support/image-upstream.ts";

const FREE = {
  inputTokenFemto: 0n,
  outputTokenFemto: 0n,
  cachedInputTokenFemto: 0n,
  cacheWriteTokenFemto: 0n,
};
const usd = (amount: number) => femtoFromUsd(amount);
const row = (size: string, quality: string, amount: number) => ({
  size,
  quality,
  imageFemto: usd(amount),
});

/** https://platform.openai.com/docs/pricing, of DALL·E 3. */
const BY_VARIANT: ModelPrices = {
  ...FREE,
  imageFemto: usd(0.04),
  imageVariants: [
    row("1024x1024", "standard", 0.04),
    row("1024x1792", "standard", 0.08),
    row("1792x1024", "standard", 0.08),
    row("1024x1024", "hd", 0.08),
    row("1024x1792", "hd", 0.12),
    row("1792x1024", "hd", 0.12),
  ],
};
const FLAT: ModelPrices = { ...FREE, imageFemto: usd(0.02), inputImageFemto: usd(0.002) };
const BY_PIXEL: ModelPrices = { ...FREE, imagePixelFemto: usd(0.05) / 1_000_000n };
/** The same of GPT Image 1: text 5, images that come 10, images that are made 40 USD a million. */
const BY_TOKEN: ModelPrices = {
  ...FREE,
  inputTokenFemto: usd(5e-6),
  imageInputTokenFemto: usd(1e-5),
  outputTokenFemto: usd(4e-5),
  imageVariants: [
    { size: "1024x1024", quality: "low", maxTokens: 272 },
    { size: "1536x1024", quality: "low", maxTokens: 400 },
    { size: "1024x1024", quality: "high", maxTokens: 4_160 },
    { size: "1536x1024", quality: "high", maxTokens: 6_208 },
  ],
};

const terms = (prices: ModelPrices): ModelTerms => ({
  prices,
  contextLength: 32_000,
  maxOutputTokens: 8_000,
  capabilities: [],
});

function request(fields: object = {}, images = 0): AcceptedImages {
  const body = { prompt: "a boat", response_format: "b64_json", ...fields };
  const accepted = acceptGeneration(body, new Headers(), undefined);
  const files = Array.from({ length: images }, () => mediaFile(new Uint8Array(8)));
  return { ...accepted, images: files };
}

const heldUsd = (prices: ModelPrices, fields?: object, images?: number) =>
  Number(imagesBound(request(fields, images), terms(prices)).fixedFemto) / 1e15;

const made = (images: number, facts: ImageFacts = {}, reported?: Usage, partials = 0) => ({
  images,
  facts,
  reported,
  partials,
});

function chargedUsd(
  prices: ModelPrices,
  what: ReturnType<typeof made>,
  fields?: object,
  images?: number,
) {
  const usage = imagesUsage(what, request(fields, images), terms(prices));
  return Number(providerCostFemto(usage, prices)) / 1e15;
}

const tokens = (text: number, image: number, output: number): Usage => ({
  ...NO_TOKENS,
  promptTokens: text + image,
  imagePromptTokens: image,
  completionTokens: output,
});

describe("what images cost", () => {
  test.each([
    ["flat, one", FLAT, made(1), {}, 0.02],
    ["flat, four", FLAT, made(4), { n: 4 }, 0.08],
    ["by size as asked", BY_VARIANT, made(1), { size: "1792x1024", quality: "hd" }, 0.12],
    ["by size as the image shows", BY_VARIANT, made(1, { size: "1024x1792" }), {}, 0.08],
    ["by quality as reported", BY_VARIANT, made(2, { quality: "hd" }), { size: "1024x1024" }, 0.16],
    [
      "reported, not what was asked",
      BY_VARIANT,
      made(1, { size: "1024x1024", quality: "standard" }),
      { quality: "hd" },
      0.04,
    ],
    ["the default's where nothing tells", BY_VARIANT, made(1), {}, 0.04],
    ["auto, which is nothing told", BY_VARIANT, made(1), { size: "auto", quality: "auto" }, 0.04],
    ["a size of no row", BY_VARIANT, made(1, { size: "512x512" }), {}, 0.04],
    ["by pixel as asked", BY_PIXEL, made(2), { size: "1000x1000" }, 0.1],
    ["by pixel as the image shows", BY_PIXEL, made(1, { size: "2000x1000" }), {}, 0.1],
    [
      "by pixel as the image shows, whatever word its provider has for that",
      BY_PIXEL,
      made(1, factsOf({ size: "2K" }, "2000x1000")),
      {},
      0.1,
    ],
    ["by pixel as was held, of an image that shows none", BY_PIXEL, made(1), {}, 0.2097152],
    [
      "tokens as reported",
      BY_TOKEN,
      made(1, {}, tokens(100, 0, 1_056)),
      {},
      100 * 5e-6 + 1_056 * 4e-5,
    ],
    [
      "no tokens reported",
      BY_TOKEN,
      made(1),
      { size: "1024x1024", quality: "low" },
      6 * 5e-6 + 272 * 4e-5,
    ],
    ["partial images alone", BY_TOKEN, made(0, {}, undefined, 2), {}, 6 * 5e-6 + 200 * 4e-5],
    ["nothing", FLAT, made(0), {}, 0],
  ] as const)("%s", (_, prices, what, fields, expected) => {
    expect(chargedUsd(prices, what, fields)).toBeCloseTo(expected, 12);
  });

  test("images that come are charged where they have a price, if any image was made", () => {
    expect(chargedUsd(FLAT, made(1), {}, 2)).toBeCloseTo(0.024, 12);
    expect(chargedUsd(FLAT, made(0), {}, 2)).toBe(0);
    const reported = tokens(100, 600, 272);
    const expected = 100 * 5e-6 + 600 * 1e-5 + 272 * 4e-5;
    expect(chargedUsd(BY_TOKEN, made(1, {}, reported), {}, 2)).toBeCloseTo(expected, 12);
  });
});

describe("what is held for images", () => {
  test.each([
    ["a flat price", FLAT, { n: 3 }, 0.06],
    ["the very variant", BY_VARIANT, { size: "1024x1024", quality: "standard" }, 0.04],
    ["the dearest quality of the size", BY_VARIANT, { size: "1024x1024" }, 0.08],
    ["the dearest size of the quality", BY_VARIANT, { quality: "standard" }, 0.08],
    ["the dearest of all, for each image", BY_VARIANT, { n: 2, size: "auto" }, 0.24],
    ["the pixels asked for", BY_PIXEL, { size: "1000x1000" }, 0.05],
    ["four million pixels of no size", BY_PIXEL, {}, 0.2097152],
  ] as const)("%s", (_, prices, fields, expected) => {
    expect(heldUsd(prices, fields)).toBeCloseTo(expected, 12);
  });

  test("tokens: all bytes of the prompt, the most of such images, and what is partial of them", () => {
    const text = (6 + 64) * 5e-6;
    const high = { size: "1024x1024", quality: "high" };
    expect(heldUsd(BY_TOKEN, high)).toBeCloseTo(text + 4_160 * 4e-5, 12);
    expect(heldUsd(BY_TOKEN, { n: 2 })).toBeCloseTo(text + 2 * 6_208 * 4e-5, 12);
    const stream = { ...high, stream: true, partial_images: 3 };
    expect(heldUsd(BY_TOKEN, stream)).toBeCloseTo(text + 4_460 * 4e-5, 12);
    expect(heldUsd(BY_TOKEN, high, 1)).toBeCloseTo(text + 8_192 * 1e-5 + 4_160 * 4e-5, 12);
  });

  test("covers whatever is charged of what was asked for, unless a provider reports more", () => {
    const size = fc.constantFrom("1024x1024", "1536x1024", "1792x1024", "512x512", "auto");
    const quality = fc.constantFrom("standard", "hd", "low", "high", "auto");
    const fields = fc.record(
      {
        size,
        quality,
        n: fc.integer({ min: 1, max: 10 }),
        stream: fc.boolean(),
        partial_images: fc.integer({ min: 0, max: 3 }),
      },
      { requiredKeys: ["n"] },
    );
    const prices = fc.constantFrom(FLAT, BY_VARIANT, BY_TOKEN);
    fc.assert(
      fc.property(fields, prices, fc.integer({ min: 0, max: 3 }), (asked, priced, images) => {
        const { n, stream, partial_images: most = 0 } = asked;
        const partials = stream === true ? most * n : 0;
        const facts = { size: asked.size, quality: asked.quality };
        const charged = chargedUsd(priced, made(n, facts, undefined, partials), asked, images);
        expect(heldUsd(priced, asked, images)).toBeGreaterThanOrEqual(charged - 1e-12);
      }),
    );
  });
});
