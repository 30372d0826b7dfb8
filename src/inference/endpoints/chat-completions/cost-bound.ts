import type { CostBound } from "../../call/endpoint.ts";
import type {
  ModelPrices,
  ModelTerms,
  TokenKindPrices,
  TokenPrices,
} from "../../../lib/catalogue-model.ts";
import { type ExactInteger, exact, times } from "../../../lib/exact-integer.ts";
import { isFields } from "../../../lib/json.ts";
import { type FemtoUsd, higher } from "../../../lib/money.ts";
import { tokensOfPrompt } from "../../../lib/token-estimate.ts";
import { estimatedUsage, type Usage } from "../../../lib/usage.ts";
import { longPromptPrices } from "../../../billing/ledger/usage.ts";
import { customGrowth } from "./custom-tools.ts";
import { transformedTokens } from "./middle-out.ts";
import { type ChatRequest, type ContentPart, LONG_BODY, statedOutputLimit } from "./request.ts";

/** Added to the bytes of each message: what chat templates put around it. */
export const TOKENS_AROUND_MESSAGE = 8;
/** Added once for the request: the template's own beginning and end. */
export const TOKENS_AROUND_REQUEST = 16;
/**
 * Added once for a request with tools: how they are to be called is explained to the model in the
 * provider's own words, which no request holds. Claude's take up to 530 tokens, DeepSeek's some 300.
 */
const TOKENS_AROUND_TOOLS = 600;

/** What an image comes to about, for an estimate; its bytes say little of its tokens. */
const TOKENS_OF_MEDIUM = 1_000;

/** Parts whose bytes are no text, in any of the names that providers know them by. */
const MEDIA_TYPES = new Set([
  "image",
  "image_url",
  "input_image",
  "audio",
  "audio_url",
  "input_audio",
  "video",
  "video_url",
  "input_video",
  "file",
  "input_file",
]);
/** Members of a message that bring media of an earlier answer back. */
const MEDIA_FIELDS = new Set(["audio", "images"]);
/** Members of a request that bring tools, today's and those of OpenAI's first form. */
const TOOL_FIELDS = ["tools", "functions"];

/** Members that never become part of a prompt; everything else may, unknown ones included. */
const NOT_PROMPT_FIELDS = new Set([
  "messages",
  "model",
  "models",
  "stream",
  "stream_options",
  "usage",
  "temperature",
  "max_tokens",
  "max_completion_tokens",
  "top_p",
  "top_k",
  "frequency_penalty",
  "presence_penalty",
  "repetition_penalty",
  "min_p",
  "seed",
  "stop",
  "logit_bias",
  "n",
  "parallel_tool_calls",
  "include_reasoning",
  "provider",
  "route",
  "route_explain",
  "user",
  "session_id",
  "trace",
  "metadata",
  "store",
  "transforms",
  "debug",
]);

/** The size of a prompt, as far as it can be known without a tokenizer. */
export interface PromptSize {
  /** UTF-8 bytes of all text that becomes part of the prompt: no token of it is shorter than a byte. */
  readonly bytes: number;
  readonly messages: number;
  /** Parts that are not text. What tokens they become is the provider's matter, whatever bytes they take. */
  readonly media: number;
  /** Tools, or a format of the answer, which some wires make a tool of. */
  readonly hasTools: boolean;
  /** Where the request asks for a cache of more than five minutes, if it does. */
  readonly longCacheLifetime: string | undefined;
  /** An estimate, where the request has its prompt cut to what the model takes (middle-out.ts). */
  readonly transformedTokens?: number | undefined;
}

export function promptSize(request: ChatRequest): PromptSize {
  const known = request[LONG_BODY]?.size;
  if (known !== undefined) return known;
  let bytes = 0;
  let media = 0;
  for (const message of request.messages) {
    const { content } = message;
    if (typeof content === "string") bytes += textBytes(content);
    else if (Array.isArray(content)) {
      for (const part of content as ContentPart[]) {
        if (part.type !== "text") media += 1;
        if (!MEDIA_TYPES.has(part.type)) bytes += jsonBytes(part);
      }
    }
    for (const field in message) {
      if (field === "content" || field === "role") continue;
      if (MEDIA_FIELDS.has(field)) media += message[field] ? 1 : 0;
      else bytes += jsonBytes(message[field]);
    }
  }
  // Tools, formats, documents: whatever a provider may make part of the prompt.
  for (const field in request) {
    if (!NOT_PROMPT_FIELDS.has(field)) bytes += jsonBytes(request[field]);
  }
  bytes += customGrowth(request);
  const hasTools = TOOL_FIELDS.some((field) => isFilledArray(request[field])) || hasFormat(request);
  return {
    bytes,
    messages: request.messages.length,
    media,
    hasTools,
    longCacheLifetime: longCacheLifetime(request),
    transformedTokens: transformedTokens(request),
  };
}

function hasFormat({ response_format: format }: ChatRequest): boolean {
  return isFields(format) && format.type !== "text";
}

function isFilledArray(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0;
}

function jsonBytes(value: unknown): number {
  return value === undefined || value === null ? 0 : textBytes(JSON.stringify(value));
}

/**
 * UTF-8 bytes of a text, as it stands and as tokenizers see it that compose it first (Qwen's do, NFC): some
 * characters are three times as long then.
 */
function textBytes(text: string): number {
  const bytes = Buffer.byteLength(text);
  // All ASCII, which nothing becomes of.
  if (bytes === text.length) return bytes;
  return Math.max(bytes, Buffer.byteLength(text.normalize("NFC")));
}

/** Prompt tokens that the request cannot exceed. */
export function promptTokenBound(
  size: PromptSize,
  { contextLength }: Pick<ModelTerms, "contextLength">,
): number {
  if (size.media > 0) return contextLength;
  const around =
    size.messages * TOKENS_AROUND_MESSAGE +
    TOKENS_AROUND_REQUEST +
    (size.hasTools ? TOKENS_AROUND_TOOLS : 0);
  return Math.min(size.bytes + around, contextLength);
}

/** Prompt tokens for an answer whose provider told none. Never above the bound. */
export function estimatedPromptTokens(
  size: PromptSize,
  terms: Pick<ModelTerms, "contextLength">,
): number {
  const tokens = tokensOfPrompt(size.bytes, size.messages) + size.media * TOKENS_OF_MEDIUM;
  return Math.min(tokens, promptTokenBound(size, terms));
}

/** Usage of an answer whose provider reported none. */
export function countedUsage(
  size: PromptSize,
  terms: Pick<ModelTerms, "contextLength">,
  outputTokens: number,
): Usage {
  return estimatedUsage(estimatedPromptTokens(size, terms), outputTokens);
}

/** An upper bound of the cost at one candidate. */
export function costBound(request: ChatRequest, size: PromptSize, terms: ModelTerms): CostBound {
  const choices = request.n ?? 1;
  const promptTokens = promptTokenBound(size, terms);
  const input = dearestInput(size, terms.prices, promptTokens);
  return {
    fixedFemto: times(promptTokens * choices, input),
    perUnitFemto: times(choices, dearestOutput(request, terms.prices, promptTokens)),
    units: statedOutputLimit(request) ?? terms.maxOutputTokens,
    fixedTokens: promptTokens * choices,
    perUnitTokens: choices,
  };
}

/** The most that a token of some kind may cost, where the prompt has at most so many. */
function dearest(
  priceOf: (prices: TokenPrices) => FemtoUsd,
  prices: ModelPrices,
  promptTokens: number,
): ExactInteger {
  const longPrompt = longPromptPrices(prices, promptTokens);
  const price = priceOf(prices);
  return exact(longPrompt === undefined ? price : higher(price, priceOf(longPrompt)));
}

/** Any token of a prompt with media may be one of sound or of an image. */
function dearestInput(
  { media, longCacheLifetime }: PromptSize,
  prices: ModelPrices,
  promptTokens: number,
): ExactInteger {
  const ofText = dearest(inputPrice, prices, promptTokens);
  if (longCacheLifetime === undefined && media === 0) return ofText;
  const apart = [
    ...(longCacheLifetime === undefined ? [] : (["cacheWriteHourTokenFemto"] as const)),
    ...(media === 0 ? [] : MEDIA_PRICES),
  ];
  return dearestOf(apart, ofText, prices, promptTokens);
}

/** The most of a price and of those of some kinds of tokens, where the prompt has at most so many. */
function dearestOf(
  kinds: readonly (keyof TokenKindPrices)[],
  ofText: ExactInteger,
  prices: ModelPrices,
  promptTokens: number,
): ExactInteger {
  const longPrompt = longPromptPrices(prices, promptTokens);
  const apart = kinds.flatMap((kind) => [prices[kind] ?? 0n, longPrompt?.[kind] ?? 0n]);
  return exact(apart.reduce<FemtoUsd>(higher, BigInt(ofText)));
}

const MEDIA_PRICES = [
  "audioInputTokenFemto",
  "imageInputTokenFemto",
  "cachedAudioInputTokenFemto",
  "cachedImageInputTokenFemto",
] as const;

/** Any token of an answer may be one of reasoning, or of an image or of sound where the model makes them. */
function dearestOutput(
  { modalities }: ChatRequest,
  prices: ModelPrices,
  promptTokens: number,
): ExactInteger {
  const ofText = dearest(outputPrice, prices, promptTokens);
  const { reasoningTokenFemto: reasoning, imageOutputTokenFemto: image } = prices;
  const mayHoldSound = modalities?.includes("audio") === true;
  if (reasoning === undefined && image === undefined && !mayHoldSound) return ofText;
  const apart: (keyof TokenKindPrices)[] = ["reasoningTokenFemto"];
  if (!modalities || modalities.includes("image")) apart.push("imageOutputTokenFemto");
  if (mayHoldSound) apart.push("audioOutputTokenFemto");
  return dearestOf(apart, ofText, prices, promptTokens);
}

function inputPrice(prices: TokenPrices): FemtoUsd {
  const { inputTokenFemto, cachedInputTokenFemto, cacheWriteTokenFemto } = prices;
  return higher(inputTokenFemto, higher(cachedInputTokenFemto, cacheWriteTokenFemto));
}

function outputPrice({ outputTokenFemto }: TokenPrices): FemtoUsd {
  return outputTokenFemto;
}

/**
 * Where a request asks for a cache of another lifetime than the usual five minutes; undefined where it does
 * not. Anthropic's of an hour costs twice the price of input to write.
 */
export function longCacheLifetime(request: ChatRequest): string | undefined {
  const long = request[LONG_BODY];
  if (long !== undefined) return long.size.longCacheLifetime;
  const { messages, tools } = request;
  if (isLong(request)) return "cache_control.ttl";
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at]!;
    if (isLong(message)) return `messages.${at}.cache_control.ttl`;
    if (!Array.isArray(message.content)) continue;
    const part = message.content.findIndex(isLong);
    if (part >= 0) return `messages.${at}.content.${part}.cache_control.ttl`;
  }
  const tool = tools?.findIndex((one) => isLong(one)) ?? -1;
  if (tool >= 0) return `tools.${tool}.cache_control.ttl`;
  const called = tools?.findIndex((one) => isFields(one) && isLong(one.function)) ?? -1;
  return called < 0 ? undefined : `tools.${called}.function.cache_control.ttl`;
}

function isLong(holder: unknown): boolean {
  if (!isFields(holder) || !isFields(holder.cache_control)) return false;
  const { ttl } = holder.cache_control;
  return ttl !== undefined && ttl !== null && ttl !== "5m";
}
