import { dearestImageFemto, mostImageTokens } from "../../../billing/ledger/image-prices.ts";
import type { ModelPrices, ModelTerms } from "../../../lib/catalogue-model.ts";
import { exact, plus, times } from "../../../lib/exact-integer.ts";
import { type FemtoUsd, higher } from "../../../lib/money.ts";
import { tokensOfPrompt } from "../../../lib/token-estimate.ts";
import { NO_TOKENS, type Usage } from "../../../lib/usage.ts";
import type { ImageFacts } from "../../../providers/media.ts";
import type { CostBound } from "../../call/endpoint.ts";
import type { AcceptedImages } from "./request.ts";

/** What providers put around a prompt. */
const TOKENS_AROUND_PROMPT = 64;
/**
 * The most tokens of an image to be edited: at OpenAI with high fidelity 6,240 for the longest sides and
 * some 200 for its tiles (https://platform.openai.com/docs/guides/images-vision), Google's at most 1,290.
 */
const MAX_INPUT_IMAGE_TOKENS = 8_192;
/** What a partial image adds to the output (https://platform.openai.com/docs/guides/image-generation). */
const TOKENS_OF_PARTIAL_IMAGE = 100;
/** Held for by models that are priced by pixel, where the request leaves the size to them. */
const MAX_OPEN_PIXELS = 2_048 * 2_048;

type Variant = NonNullable<Usage["imageVariant"]>;

/** An upper bound of what the images cost: the dearest that the request may get, all of them. */
export function imagesBound(
  request: AcceptedImages,
  { prices, maxOutputTokens }: ModelTerms,
): CostBound {
  const { count, prompt, fields } = request;
  const asked = knownVariant(prices, { size: fields.size, quality: fields.quality });
  const inputs = inputImages(request);
  const texts = Buffer.byteLength(prompt) + Buffer.byteLength(fields.negative_prompt ?? "");
  const inputText = texts + TOKENS_AROUND_PROMPT;
  const partials = fields.stream === true ? (fields.partial_images ?? 0) : 0;
  const outputTokens =
    (mostImageTokens(prices, asked) ?? maxOutputTokens) + partials * TOKENS_OF_PARTIAL_IMAGE;
  const parts: readonly [units: number, femto: FemtoUsd | undefined][] = [
    [inputText, prices.inputTokenFemto],
    [inputs * MAX_INPUT_IMAGE_TOKENS, dearer(prices, "imageInputTokenFemto", "inputTokenFemto")],
    [inputs, prices.inputImageFemto],
    [count, dearestImageFemto(prices, asked)],
    [count * (pixelsOf(fields.size) ?? MAX_OPEN_PIXELS), prices.imagePixelFemto],
    [count * outputTokens, dearer(prices, "imageOutputTokenFemto", "outputTokenFemto")],
  ];
  const fixedFemto = parts.reduce<CostBound["fixedFemto"]>(
    (sum, [units, femto]) => plus(sum, times(units, exact(femto ?? 0n))),
    0,
  );
  const inputTokens = inputText + inputs * MAX_INPUT_IMAGE_TOKENS;
  const fixedTokens = isByTokens(prices) ? inputTokens + count * outputTokens : 0;
  return { fixedFemto, perUnitFemto: 0, units: 0, fixedTokens, perUnitTokens: 0 };
}

/** What was made of a request. */
export interface MadeOfRequest {
  /** Whole images, and those that have begun to come. */
  readonly images: number;
  readonly partials: number;
  /** As far as the provider, or the bytes of the images, tell. */
  readonly facts: ImageFacts;
  /** Of tokens, as the provider reports it. */
  readonly reported: Usage | undefined;
}

/** What is charged: images by what they came as, tokens as reported, or as many as such images have at most. */
export function imagesUsage(
  made: MadeOfRequest,
  request: AcceptedImages,
  terms: ModelTerms,
): Usage {
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
  { images, partials }: MadeOfRequest,
  request: AcceptedImages,
  { prices, maxOutputTokens }: ModelTerms,
  variant: Variant,
): Usage {
  if (!isByTokens(prices)) return NO_TOKENS;
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

function isByTokens({ outputTokenFemto, imageOutputTokenFemto = 0n }: ModelPrices): boolean {
  return outputTokenFemto > 0n || imageOutputTokenFemto > 0n;
}

/** A mask counts as one. */
function inputImages({ images, mask }: AcceptedImages): number {
  return images.length + (mask === undefined ? 0 : 1);
}

/** Of size and quality what the model's prices tell apart; of others nothing is known. */
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

/** Of an image without known sides as many as were held for. */
function pixelsCharged(known: string | undefined, asked: string | null | undefined): number {
  return pixelsOf(known) ?? pixelsOf(asked) ?? MAX_OPEN_PIXELS;
}

/** Tokens of images may turn out to be those of text. */
function dearer(
  prices: ModelPrices,
  kind: "imageInputTokenFemto" | "imageOutputTokenFemto",
  basis: "inputTokenFemto" | "outputTokenFemto",
): FemtoUsd {
  return higher(prices[kind] ?? 0n, prices[basis]);
}
