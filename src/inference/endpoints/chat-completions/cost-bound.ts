import { longPromptPrices } from "../../../billing/ledger/usage.ts";
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
import type { CostBound } from "../../call/endpoint.ts";
import { customGrowth } from "./custom-tools.ts";
import { transformedTokens } from "./middle-out.ts";
import {
  type ChatRequest,
  type ContentPart,
  OFFLOADED_BODY,
  statedOutputLimit,
} from "./request.ts";

/** Tokens that a chat template adds to each message. The bound counts each byte of a prompt as one token. */
export const TOKENS_AROUND_MESSAGE = 8;
/** Tokens that a chat template adds once to the request, at its beginning and end. */
export const TOKENS_AROUND_REQUEST = 16;
/**
 * Tokens added once to a request with tools. Providers explain tool calls to the model in words that are not
 * in the request: up to 530 tokens for Claude, about 300 for DeepSeek.
 */
const TOKENS_AROUND_TOOLS = 600;

/** Estimated tokens of an image or another medium. Its bytes say little about its tokens. */
const TOKENS_OF_MEDIUM = 1_000;

/** Part types whose bytes are not text, under all names that providers use. */
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
/** Members of a message that carry media of an earlier answer. */
const MEDIA_FIELDS = new Set(["audio", "images"]);
/** Members of a request that define tools. `functions` is from OpenAI's first function calls. */
const TOOL_FIELDS = ["tools", "functions"];

/** Members that never become part of a prompt. All others can, including unknown ones. */
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

/** The size of a prompt, measured without a tokenizer. */
export interface PromptSize {
  /** UTF-8 bytes of all text that becomes part of the prompt. Every token has at least one byte. */
  readonly bytes: number;
  readonly messages: number;
  /** Number of parts that are not text. Each provider counts their tokens in its own way, whatever their bytes. */
  readonly media: number;
  /** True if the request has tools, or a response format, which some adapters send as a tool. */
  readonly hasTools: boolean;
  /** The parameter that requests a cache lifetime of more than five minutes, if the request has one. */
  readonly longCacheLifetime: string | undefined;
  /** Estimated prompt tokens, set if the request uses the transform "middle-out" (middle-out.ts). */
  readonly transformedTokens?: number | undefined;
}

export function promptSize(request: ChatRequest): PromptSize {
  const measured = request[OFFLOADED_BODY]?.size;
  if (measured !== undefined) return measured;
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
  // Providers can make any of these fields part of the prompt: tools, formats, documents.
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
 * Returns the UTF-8 bytes of a text, or of its NFC form if that is longer. Some tokenizers normalize to NFC
 * first (Qwen's do), which triples the length of some characters.
 */
function textBytes(text: string): number {
  const bytes = Buffer.byteLength(text);
  // The text is ASCII, which NFC does not change.
  if (bytes === text.length) return bytes;
  return Math.max(bytes, Buffer.byteLength(text.normalize("NFC")));
}

/** Returns an upper bound of the prompt tokens of a request. */
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

/** Returns the estimated prompt tokens of an answer whose provider reported no usage. At most the bound. */
export function estimatedPromptTokens(
  size: PromptSize,
  terms: Pick<ModelTerms, "contextLength">,
): number {
  const tokens = tokensOfPrompt(size.bytes, size.messages) + size.media * TOKENS_OF_MEDIUM;
  return Math.min(tokens, promptTokenBound(size, terms));
}

/** Returns the estimated usage of an answer whose provider reported no usage. */
export function countedUsage(
  size: PromptSize,
  terms: Pick<ModelTerms, "contextLength">,
  outputTokens: number,
): Usage {
  return estimatedUsage(estimatedPromptTokens(size, terms), outputTokens);
}

/** Returns an upper bound of the cost at one candidate. */
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

/** Returns the highest price of one kind of token, for prompts of at most `promptTokens` tokens. */
function dearest(
  priceOf: (prices: TokenPrices) => FemtoUsd,
  prices: ModelPrices,
  promptTokens: number,
): ExactInteger {
  const longPrompt = longPromptPrices(prices, promptTokens);
  const price = priceOf(prices);
  return exact(longPrompt === undefined ? price : higher(price, priceOf(longPrompt)));
}

/**
 * Returns the highest price of an input token. In a prompt with media, any token can be an audio or image
 * token.
 */
function dearestInput(
  { media, longCacheLifetime }: PromptSize,
  prices: ModelPrices,
  promptTokens: number,
): ExactInteger {
  const ofText = dearest(inputPrice, prices, promptTokens);
  if (longCacheLifetime === undefined && media === 0) return ofText;
  const separate = [
    ...(longCacheLifetime === undefined ? [] : (["cacheWriteHourTokenFemto"] as const)),
    ...(media === 0 ? [] : MEDIA_PRICES),
  ];
  return dearestOf(separate, ofText, prices, promptTokens);
}

/**
 * Returns the highest of the text price and the prices of some kinds of tokens, for prompts of at most
 * `promptTokens` tokens.
 */
function dearestOf(
  kinds: readonly (keyof TokenKindPrices)[],
  ofText: ExactInteger,
  prices: ModelPrices,
  promptTokens: number,
): ExactInteger {
  const longPrompt = longPromptPrices(prices, promptTokens);
  const separate = kinds.flatMap((kind) => [prices[kind] ?? 0n, longPrompt?.[kind] ?? 0n]);
  return exact(separate.reduce<FemtoUsd>(higher, BigInt(ofText)));
}

const MEDIA_PRICES = [
  "audioInputTokenFemto",
  "imageInputTokenFemto",
  "cachedAudioInputTokenFemto",
  "cachedImageInputTokenFemto",
] as const;

/**
 * Returns the highest price of an output token. Any token can be a reasoning token, or an image or audio
 * token if the request allows these.
 */
function dearestOutput(
  { modalities }: ChatRequest,
  prices: ModelPrices,
  promptTokens: number,
): ExactInteger {
  const ofText = dearest(outputPrice, prices, promptTokens);
  const { reasoningTokenFemto: reasoning, imageOutputTokenFemto: image } = prices;
  const canHaveAudio = modalities?.includes("audio") === true;
  if (reasoning === undefined && image === undefined && !canHaveAudio) return ofText;
  const separate: (keyof TokenKindPrices)[] = ["reasoningTokenFemto"];
  if (!modalities || modalities.includes("image")) separate.push("imageOutputTokenFemto");
  if (canHaveAudio) separate.push("audioOutputTokenFemto");
  return dearestOf(separate, ofText, prices, promptTokens);
}

function inputPrice(prices: TokenPrices): FemtoUsd {
  const { inputTokenFemto, cachedInputTokenFemto, cacheWriteTokenFemto } = prices;
  return higher(inputTokenFemto, higher(cachedInputTokenFemto, cacheWriteTokenFemto));
}

function outputPrice({ outputTokenFemto }: TokenPrices): FemtoUsd {
  return outputTokenFemto;
}

/**
 * Returns the parameter that requests a cache lifetime other than five minutes, or undefined if there is
 * none. At Anthropic, writing to the cache for an hour costs twice the input price.
 */
export function longCacheLifetime(request: ChatRequest): string | undefined {
  const long = request[OFFLOADED_BODY];
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
  const tool = tools?.findIndex((entry) => isLong(entry)) ?? -1;
  if (tool >= 0) return `tools.${tool}.cache_control.ttl`;
  const called = tools?.findIndex((entry) => isFields(entry) && isLong(entry.function)) ?? -1;
  return called < 0 ? undefined : `tools.${called}.function.cache_control.ttl`;
}

function isLong(holder: unknown): boolean {
  if (!isFields(holder) || !isFields(holder.cache_control)) return false;
  const { ttl } = holder.cache_control;
  return ttl !== undefined && ttl !== null && ttl !== "5m";
}
