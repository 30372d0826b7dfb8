import type { ImageVariant, ModelPrices } from "../../lib/catalogue-model.ts";
import { femtoFromUsd } from "../../lib/money.ts";

/** An image model that no list of the packages prices. Prices are in USD. */
interface StatedImages {
  readonly name: string;
  readonly displayName: string;
  /** Price of one image. */
  readonly image?: number;
  /** Price of one image to edit. */
  readonly inputImage?: number;
  /** Prices of a million tokens: of text, of input images, of output images. */
  readonly tokens?: {
    readonly input: number;
    readonly imageInput: number;
    readonly output: number;
  };
}

const flat = (name: string, displayName: string, image: number): StatedImages => ({
  name,
  displayName,
  image,
});

/** https://developers.openai.com/api/docs/pricing */
const gptImage = (name: string, displayName: string): StatedImages => ({
  name,
  displayName,
  tokens: { input: 5, imageInput: 8, output: 30 },
});

/**
 * Prices that vendors publish, compared with the list of LiteLLM 1.109.1 (October 2026), which names their pages. It
 * does not contain models whose price depends on rounded megapixels (FLUX.2, fal's FLUX.1, Together's), or that are
 * shut down (DALL·E, Imagen at the Gemini API). The configuration file can state them.
 */
const MODELS: Readonly<Record<string, readonly StatedImages[]>> = {
  openai: [
    gptImage("gpt-image-2.5-sunburst", "GPT Image 2.5 Sunburst"),
    gptImage("gpt-image-2.5-flare", "GPT Image 2.5 Flare"),
  ],
  // https://azure.microsoft.com/pricing/details/azure-openai/
  azure: [
    gptImage("gpt-image-2.5-sunburst", "GPT Image 2.5 Sunburst"),
    gptImage("gpt-image-2.5-flare", "GPT Image 2.5 Flare"),
    gptImage("gpt-image-2", "GPT Image 2"),
  ],
  // https://docs.x.ai/docs/models: edits are billed for input and output images.
  xai: [{ ...flat("grok-imagine-image", "Grok Imagine Image", 0.02), inputImage: 0.002 }],
  // https://platform.stability.ai/pricing: a credit is 0.01 USD.
  stability: [
    flat("stable-image-ultra", "Stable Image Ultra", 0.08),
    flat("stable-image-core", "Stable Image Core", 0.03),
    flat("sd3.5-large", "Stable Diffusion 3.5 Large", 0.065),
    flat("sd3.5-large-turbo", "Stable Diffusion 3.5 Large Turbo", 0.04),
    flat("sd3.5-medium", "Stable Diffusion 3.5 Medium", 0.035),
  ],
  // https://bfl.ai/pricing
  bfl: [
    flat("flux-kontext-max", "FLUX.1 Kontext [max]", 0.08),
    flat("flux-kontext-pro", "FLUX.1 Kontext [pro]", 0.04),
    flat("flux-pro-1.1-ultra", "FLUX1.1 [pro] Ultra", 0.06),
    flat("flux-pro-1.1", "FLUX1.1 [pro]", 0.04),
    flat("flux-dev", "FLUX.1 [dev]", 0.025),
  ],
  // The page of each model (https://fal.ai/models).
  fal: [
    flat("fal-ai/flux-pro/v1.1-ultra", "FLUX1.1 [pro] Ultra", 0.06),
    flat("fal-ai/nano-banana", "Nano Banana", 0.039),
    flat("fal-ai/nano-banana/edit", "Nano Banana (edit)", 0.039),
  ],
};

/** A model of this file, with its prices. */
export interface PricedImages {
  readonly name: string;
  readonly displayName: string;
  readonly prices: ModelPrices;
}

export function statedImages(typeName: string): readonly PricedImages[] {
  const models = Object.hasOwn(MODELS, typeName) ? MODELS[typeName]! : [];
  return models.map(({ name, displayName, ...stated }) => ({
    name,
    displayName,
    prices: pricesOf(stated),
  }));
}

function pricesOf({ image, inputImage, tokens }: Omit<StatedImages, "name" | "displayName">) {
  const inputTokenFemto = perMillion(tokens?.input ?? 0);
  const prices: ModelPrices = {
    inputTokenFemto,
    outputTokenFemto: perMillion(tokens?.output ?? 0),
    cachedInputTokenFemto: inputTokenFemto,
    cacheWriteTokenFemto: inputTokenFemto,
    ...(image !== undefined && { imageFemto: femtoFromUsd(image) }),
    ...(inputImage !== undefined && { inputImageFemto: femtoFromUsd(inputImage) }),
    ...(tokens !== undefined && { imageInputTokenFemto: perMillion(tokens.imageInput) }),
  };
  return prices;
}

function perMillion(usd: number): bigint {
  return femtoFromUsd(usd) / 1_000_000n;
}

/** Upper bound of text and reasoning tokens that models produce in addition to an image. */
const EXTRA_TOKENS = 1_024;

/**
 * Tokens of an image by its quality and size: https://platform.openai.com/docs/guides/image-generation, "Cost and
 * latency".
 */
const GPT_IMAGE_1: readonly ImageVariant[] = Object.entries({
  low: { "1024x1024": 272, "1024x1536": 408, "1536x1024": 400 },
  medium: { "1024x1024": 1_056, "1024x1536": 1_584, "1536x1024": 1_568 },
  high: { "1024x1024": 4_160, "1024x1536": 6_240, "1536x1024": 6_208 },
}).flatMap(([quality, sizes]) =>
  Object.entries(sizes).map(([size, tokens]) => ({
    quality,
    size,
    maxTokens: tokens + EXTRA_TOKENS,
  })),
);

/** Returns variants by quality, for any size, from the highest price of such an image on the vendor's page. */
const byQuality = (low: number, medium: number, high: number): readonly ImageVariant[] =>
  Object.entries({ low, medium, high }).map(([quality, tokens]) => ({
    quality,
    maxTokens: tokens + EXTRA_TOKENS,
  }));

/** Variants of models whose images are priced by tokens, by patterns of names. The first match applies. */
const TOKENS: readonly (readonly [RegExp, readonly ImageVariant[]])[] = [
  [/gpt-image-1-mini/, byQuality(750, 1_875, 6_500)],
  [/gpt-image-1/, GPT_IMAGE_1],
  // Up to 3840x2160.
  [/gpt-image/, byQuality(400, 3_400, 13_400)],
  // https://ai.google.dev/gemini-api/docs/pricing: 1,290 tokens, and up to 2,520 from Gemini 3 on, which reasons.
  [/gemini-2\.5.*image/, [{ maxTokens: 1_290 + EXTRA_TOKENS }]],
  [/gemini.*image/, [{ maxTokens: 2_520 + 8 * EXTRA_TOKENS }]],
];

/** Returns the known token counts of a model's images. Undefined if they are not priced by tokens. */
export function imageTokens(name: string): readonly ImageVariant[] | undefined {
  return TOKENS.find(([pattern]) => pattern.test(name))?.[1];
}

/** Returns the most tokens of one image. 0 if none are known. */
export function mostTokensOf(variants: readonly ImageVariant[] = []): number {
  return Math.max(0, ...variants.map(({ maxTokens = 0 }) => maxTokens));
}

/** Prices of a million image tokens at OpenRouter in USD, which the price list does not have. */
const AT_OPENROUTER: Readonly<Record<string, number>> = {
  "google/gemini-2.5-flash-image": 30,
  "google/gemini-3-pro-image-preview": 120,
  "google/gemini-3.1-flash-image-preview": 60,
};

/** Returns the prices. Adds the price of image tokens for the models above. */
export function withImageTokenPrice(
  typeName: string,
  name: string,
  prices: ModelPrices,
): ModelPrices {
  if (typeName !== "openrouter" || !Object.hasOwn(AT_OPENROUTER, name)) return prices;
  return { ...prices, imageOutputTokenFemto: perMillion(AT_OPENROUTER[name]!) };
}

/** Returns true if a chat with the model can answer with images. */
export function chatsWithImages(name: string): boolean {
  return /(?:^|\/)gemini-.*image/.test(name);
}
