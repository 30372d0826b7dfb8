import type { ModelPrices } from "../../lib/catalogue-model.ts";
import { type ExactInteger, exact, plus, times } from "../../lib/exact-integer.ts";

/** Tokens of one call, normalised: prompt tokens include cached reads and writes, completion tokens reasoning. */
export interface Usage {
  readonly promptTokens: number;
  readonly cachedPromptTokens: number;
  readonly cacheWriteTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  /** True where tokens were counted here. */
  readonly estimated: boolean;
}

/**
 * Reads the usage object of a provider of OpenAI's wire format. Undefined where there is none, or one
 * that cannot be true (negative, fractional, beyond integers): it is then counted here.
 */
export function readUsage(raw: unknown): Usage | undefined {
  if (typeof raw !== "object" || raw === null) return undefined;
  const usage = raw as Record<string, unknown>;
  const promptTokens = usage.prompt_tokens;
  const total = usage.total_tokens;
  const completionTokens = usage.completion_tokens ?? difference(total, promptTokens);
  if (!isCount(promptTokens) || !isCount(completionTokens)) return undefined;
  // No prompt is empty: some servers fill in zeros for what they have not counted.
  if (promptTokens === 0 && completionTokens === 0) return undefined;
  const prompt = usage.prompt_tokens_details as Record<string, unknown> | null | undefined;
  const completion = usage.completion_tokens_details as Record<string, unknown> | null | undefined;
  const cached = countOr0(
    prompt?.cached_tokens ?? usage.prompt_cache_hit_tokens ?? usage.cached_tokens,
  );
  const written = countOr0(prompt?.cache_write_tokens ?? prompt?.cache_creation_tokens);
  const reasoning = countOr0(completion?.reasoning_tokens);
  const apart = isCount(total) ? total - promptTokens - completionTokens : 0;
  const isOfCache = apart === cached || apart === written || apart === cached + written;
  const reasoningApart = apart > 0 ? countedApart(apart, reasoning, isOfCache) : 0;
  const cachedPromptTokens = Math.min(cached, promptTokens);
  return {
    promptTokens,
    cachedPromptTokens,
    cacheWriteTokens: Math.min(written, promptTokens - cachedPromptTokens),
    completionTokens: completionTokens + reasoningApart,
    reasoningTokens: reasoningApart || Math.min(reasoning, completionTokens),
    estimated: false,
  };
}

/**
 * Some providers count reasoning beside the completion, which shows in their total, and Gemini tells of it in
 * nothing else. What is in the total besides may also be what was read from a cache or written to it.
 */
function countedApart(apart: number, reasoning: number, isOfCache: boolean): number {
  if (apart === reasoning) return reasoning;
  return reasoning === 0 && !isOfCache ? apart : 0;
}

function difference(total: unknown, promptTokens: unknown): number | undefined {
  return isCount(total) && isCount(promptTokens) ? total - promptTokens : undefined;
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function countOr0(value: unknown): number {
  return isCount(value) ? value : 0;
}

/** What the provider asks for these tokens, in femto-USD. */
export function providerCostFemto(usage: Usage, prices: ModelPrices): ExactInteger {
  const { cachedPromptTokens, cacheWriteTokens } = usage;
  const plain = usage.promptTokens - cachedPromptTokens - cacheWriteTokens;
  const cost = plus(
    times(plain, exact(prices.inputTokenFemto)),
    times(usage.completionTokens, exact(prices.outputTokenFemto)),
  );
  // Most calls have neither.
  if (cachedPromptTokens === 0 && cacheWriteTokens === 0) return cost;
  const cached = times(cachedPromptTokens, exact(prices.cachedInputTokenFemto));
  return plus(cost, plus(cached, times(cacheWriteTokens, exact(prices.cacheWriteTokenFemto))));
}

/** Most calls have neither cached nor reasoning tokens. */
const NONE_CACHED = Object.freeze({ cached_tokens: 0 });
const NO_REASONING = Object.freeze({ reasoning_tokens: 0 });

/** The usage object of answers; `cost` in USD. What was written to a cache has a price of its own. */
export function usageBody(usage: Usage, cost: number): Record<string, unknown> {
  const { cachedPromptTokens: cached, reasoningTokens: reasoning } = usage;
  const written = usage.cacheWriteTokens;
  const prompt = cached === 0 ? NONE_CACHED : { cached_tokens: cached };
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: written === 0 ? prompt : { ...prompt, cache_write_tokens: written },
    completion_tokens_details: reasoning === 0 ? NO_REASONING : { reasoning_tokens: reasoning },
    cost,
  };
}
