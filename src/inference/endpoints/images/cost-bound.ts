import { highestImageFemto, mostImageTokens } from "../../../billing/ledger/image-prices.ts";
import type { ModelPrices, ModelTerms } from "../../../lib/catalogue-model.ts";
import { exact, plus, times } from "../../../lib/exact-integer.ts";
import { type FemtoUsd, higher } from "../../../lib/money.ts";
import { tokensOfPrompt } from "../../../lib/token-estimate.ts";
import { NO_TOKENS, type Usage } from "../../../lib/usage.ts";
import type { ImageFacts } from "../../../providers/media.ts";
import { type CostBound, fixedBound } from "../../call/endpoint.ts";
import type { AcceptedImages } from "./request.ts";

/** Tokens that providers add to a prompt. */
const TOKENS_AROUND_PROMPT = 64;
/**
 * Maximum tokens of an image to edit. OpenAI with high fidelity: 6,240 for the longest sides and about 200
 * for its tiles (https://platform.openai.com/docs/guides/images-vision). Google: 1,290.
 */
const MAX_INPUT_IMAGE_TOKENS = 8_192;
/** Tokens that a partial image adds to the output (https://platform.openai.com/docs/guides/image-generation). */
const TOKENS_OF_PARTIAL_IMAGE = 100;
/** Pixels that a hold covers if the model has a price per pixel and the request states no size. */
const MAX_OPEN_PIXELS = 2_048 * 2_048;

type Variant = NonNullable<Usage["imageVariant"]>;

/** Returns an upper bound of the cost: all images at the highest price that the request can cause. */
export function imagesBound(
  request: AcceptedImages,
  { prices, maxOutputTokens }: ModelTerms,
): CostBound {
  const { count, prompt, fields } = request;
  const requestedVariant = knownVariant(prices, { size: fields.size, quality: fields.quality });
  const inputs = inputImages(request);
  const texts = Buffer.byteLength(prompt) + Buffer.byteLength(fields.negative_prompt ?? "");
  const inputText = texts + TOKENS_AROUND_PROMPT;
  const partials = fields.stream === true ? (fields.partial_images ?? 0) : 0;
  const outputTokens =
    (mostImageTokens(prices, requestedVariant) ?? maxOutputTokens) +
    partials * TOKENS_OF_PARTIAL_IMAGE;
  const parts: readonly [units: number, femto: FemtoUsd | undefined][] = [
    [inputText, prices.inputTokenFemto],
    [inputs * MAX_INPUT_IMAGE_TOKENS, dearer(prices, "imageInputTokenFemto", "inputTokenFemto")],
    [inputs, prices.inputImageFemto],
    [count, highestImageFemto(prices, requestedVariant)],
    [count * (pixelsOf(fields.size) ?? MAX_OPEN_PIXELS), prices.imagePixelFemto],
    [count * outputTokens, dearer(prices, "imageOutputTokenFemto", "outputTokenFemto")],
  ];
  const fixedFemto = parts.reduce<CostBound["fixedFemto"]>(
    (sum, [units, femto]) => plus(sum, times(units, exact(femto ?? 0n))),
    0,
  );
  const inputTokens = inputText + inputs * MAX_INPUT_IMAGE_TOKENS;
  const fixedTokens = hasTokenPrices(prices) ? inputTokens + count * outputTokens : 0;
  return fixedBound(fixedFemto, fixedTokens);
}

/** The result of a request for images. */
export interface ImagesResult {
  /** Number of images to charge: the complete ones, and one more if another has begun to arrive. */
  readonly images: number;
  readonly partials: number;
  /** Facts from the provider or from the bytes of the images. */
  readonly facts: ImageFacts;
  /** Token usage reported by the provider. */
  readonly reported: Usage | undefined;
}

/**
 * Returns the usage to charge: images by their actual size and quality, and tokens as reported. If the
 * provider reports no tokens, the usage has the most tokens that such images can have.
 */
export function imagesUsage(made: ImagesResult, request: AcceptedImages, terms: ModelTerms): Usage {
  const { images, facts, reported } = made;
  const { prices } = terms;
  const size = stated(facts.size) ?? stated(request.fields.size);
  const quality = stated(facts.quality) ?? stated(request.fields.quality);
  const variant = knownVariant(prices, { size, quality });
  const inputs = images === 0 ? 0 : inputImages(request);
  const pixels = prices.imagePixelFemto && images * pixelsCharged(size, request.fields.size);
  return {
    ...(reported ?? countedTokens(made, request, terms, variant)),
    images,
    ...(inputs > 0 && { inputImages: inputs }),
    ...(pixels && { imagePixels: pixels }),
    ...((variant.size ?? variant.quality) !== undefined && { imageVariant: variant }),
  };
}

function countedTokens(
  { images, partials }: ImagesResult,
  request: AcceptedImages,
  { prices, maxOutputTokens }: ModelTerms,
  variant: Variant,
): Usage {
  if (!hasTokenPrices(prices)) return NO_TOKENS;
  const text = tokensOfPrompt(Buffer.byteLength(request.prompt), 1);
  const inputTokens = inputImages(request) * MAX_INPUT_IMAGE_TOKENS;
  const ofImages = images * (mostImageTokens(prices, variant) ?? maxOutputTokens);
  const outputTokens = ofImages + partials * TOKENS_OF_PARTIAL_IMAGE;
  return {
    ...NO_TOKENS,
    promptTokens: text + inputTokens,
    completionTokens: outputTokens,
    imagePromptTokens: inputTokens,
    imageCompletionTokens: outputTokens,
    estimated: true,
  };
}

function hasTokenPrices({ outputTokenFemto, imageOutputTokenFemto = 0n }: ModelPrices): boolean {
  return outputTokenFemto > 0n || imageOutputTokenFemto > 0n;
}

/** Returns the number of input images. A mask counts as one. */
function inputImages({ images, mask }: AcceptedImages): number {
  return images.length + (mask === undefined ? 0 : 1);
}

/** Returns the size and quality, as far as the model's prices depend on them. */
function knownVariant(
  { imageVariants = [] }: ModelPrices,
  { size, quality }: { size?: string | null | undefined; quality?: string | null | undefined },
): Variant {
  const knowsSize = imageVariants.some((variant) => variant.size === size);
  const knowsQuality = imageVariants.some((variant) => variant.quality === quality);
  return {
    ...(size && knowsSize && { size }),
    ...(quality && knowsQuality && { quality }),
  };
}

function stated(value: string | null | undefined): string | undefined {
  return value === null || value === "auto" ? undefined : value;
}

const SIZE = /^(\d{1,5})x(\d{1,5})$/;

function pixelsOf(size: string | null | undefined): number | undefined {
  const [, width, height] = SIZE.exec(size ?? "") ?? [];
  return width === undefined ? undefined : Number(width) * Number(height);
}

/** Returns the pixels to charge. If the size is unknown, these are the pixels that the hold covers. */
function pixelsCharged(actual: string | undefined, requested: string | null | undefined): number {
  return pixelsOf(actual) ?? pixelsOf(requested) ?? MAX_OPEN_PIXELS;
}

/**
 * Returns the higher of the image price and the text price, because providers can report image tokens as text
 * tokens.
 */
function dearer(
  prices: ModelPrices,
  kind: "imageInputTokenFemto" | "imageOutputTokenFemto",
  basis: "inputTokenFemto" | "outputTokenFemto",
): FemtoUsd {
  return higher(prices[kind] ?? 0n, prices[basis]);
}
