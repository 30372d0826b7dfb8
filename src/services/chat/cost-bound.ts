import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import type { FemtoUsd } from "../../lib/money.ts";
import { tokensOfPrompt } from "../../lib/token-estimate.ts";
import { type ChatRequest, type ContentPart, statedOutputLimit } from "./request.ts";

/** Added to the bytes of each message: what chat templates put around it. */
export const TOKENS_AROUND_MESSAGE = 8;
/** Added once for the request: the template's own beginning and end. */
export const TOKENS_AROUND_REQUEST = 16;

/** Members that never become part of a prompt; everything else may, unknown ones included. */
const NOT_PROMPT_FIELDS = new Set([
  "messages",
  "model",
  "models",
  "stream",
  "stream_options",
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
]);

/** The size of a prompt, as far as it can be known without a tokenizer. */
export interface PromptSize {
  /** UTF-8 bytes of everything that becomes part of the prompt: no token is shorter than a byte. */
  readonly bytes: number;
  readonly messages: number;
  /** True where media is given by URL, so that its size is not known here. */
  readonly hasUnknownMedia: boolean;
}

export interface CostBound {
  readonly fixedFemto: FemtoUsd;
  readonly perTokenFemto: FemtoUsd;
  readonly outputTokens: number;
}

export function promptSize(request: ChatRequest): PromptSize {
  let bytes = 0;
  let hasUnknownMedia = false;
  for (const message of request.messages) {
    const { content } = message;
    if (typeof content === "string") bytes += Buffer.byteLength(content);
    else if (Array.isArray(content)) {
      for (const part of content as ContentPart[]) {
        if (isMediaByUrl(part)) hasUnknownMedia = true;
        bytes += jsonBytes(part);
      }
    }
    for (const field in message) {
      if (field !== "content" && field !== "role") bytes += jsonBytes(message[field]);
    }
  }
  // Tools, formats, documents: whatever a provider may make part of the prompt.
  for (const field in request) {
    if (!NOT_PROMPT_FIELDS.has(field)) bytes += jsonBytes(request[field]);
  }
  return { bytes, messages: request.messages.length, hasUnknownMedia };
}

function jsonBytes(value: unknown): number {
  return value === undefined || value === null ? 0 : Buffer.byteLength(JSON.stringify(value));
}

function isMediaByUrl(part: ContentPart): boolean {
  if (part.type === "text") return false;
  const url = (part[part.type] as { url?: unknown } | undefined)?.url;
  return typeof url === "string" ? !url.startsWith("data:") : part.type === "file";
}

/** Prompt tokens that the request cannot exceed (contract §6). */
export function promptTokenBound(size: PromptSize, model: CatalogueModel): number {
  if (size.hasUnknownMedia) return model.contextLength;
  const bound = size.bytes + size.messages * TOKENS_AROUND_MESSAGE + TOKENS_AROUND_REQUEST;
  return Math.min(bound, model.contextLength);
}

/** Prompt tokens for an answer whose provider told none. Never above the bound. */
export function estimatedPromptTokens(size: PromptSize, model: CatalogueModel): number {
  return Math.min(tokensOfPrompt(size.bytes, size.messages), promptTokenBound(size, model));
}

/** An upper bound of the cost over all models that may serve the request: one hold covers the chain. */
export function costBound(
  request: ChatRequest,
  size: PromptSize,
  models: readonly CatalogueModel[],
): CostBound {
  const choices = BigInt(request.n ?? 1);
  const limit = statedOutputLimit(request);
  let fixedFemto = 0n;
  let perTokenFemto = 0n;
  let outputTokens = 0;
  for (const model of models) {
    const { prices } = model;
    const inputFemto = largest(
      prices.inputTokenFemto,
      prices.cachedInputTokenFemto,
      prices.cacheWriteTokenFemto,
    );
    const fixed = BigInt(promptTokenBound(size, model)) * inputFemto * choices;
    fixedFemto = largest(fixedFemto, fixed);
    perTokenFemto = largest(perTokenFemto, prices.outputTokenFemto * choices);
    outputTokens = Math.max(outputTokens, limit ?? model.maxOutputTokens);
  }
  return { fixedFemto, perTokenFemto, outputTokens };
}

function largest(...values: bigint[]): bigint {
  return values.reduce((most, value) => (value > most ? value : most), 0n);
}
