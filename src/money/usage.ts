import type { UsageFigures } from "../../db/ledger/rows.ts";
import type { ModelPrices, TokenPrices } from "../lib/catalogue-model.ts";
import { type ExactInteger, exact, plus, times } from "../lib/exact-integer.ts";
import { quantitiesOf, type Usage } from "../lib/usage.ts";

export type { Usage } from "../lib/usage.ts";

/**
 * Reads the usage object of a provider of OpenAI's wire format. Undefined where there is none, or one
 * that cannot be true (negative, fractional, beyond integers): it is then counted here.
 */
export function readUsage(raw: unknown): Usage | undefined {
  if (typeof raw !== "object" || raw === null) return undefined;
  const usage = raw as Record<string, unknown>;
  const total = usage.total_tokens;
  const prompt = usage.prompt_tokens;
  const completion = usage.completion_tokens ?? difference(total, prompt);
  if (!isCount(prompt) || !isCount(completion)) return undefined;
  // No prompt is empty: some servers fill in zeros for what they have not counted.
  if (prompt === 0 && completion === 0) return undefined;
  const ofPrompt = usage.prompt_tokens_details as Record<string, unknown> | null | undefined;
  const ofCompletion = usage.completion_tokens_details as
    | Record<string, unknown>
    | null
    | undefined;
  const cached = countOr0(
    ofPrompt?.cached_tokens ??
      usage.prompt_cache_hit_tokens ??
      usage.cached_tokens ??
      usage.num_cached_tokens,
  );
  const written = countOr0(ofPrompt?.cache_write_tokens ?? ofPrompt?.cache_creation_tokens);
  const reasoning = countOr0(ofCompletion?.reasoning_tokens);
  const apart = tokensApart(total, prompt + completion, cached + written, reasoning);
  const promptTokens = prompt + apart.cache;
  const completionTokens = completion + apart.reasoning;
  const cachedPromptTokens = Math.min(cached, promptTokens);
  return {
    promptTokens,
    cachedPromptTokens,
    cacheWriteTokens: Math.min(written, promptTokens - cachedPromptTokens),
    completionTokens,
    reasoningTokens: Math.min(apart.reasoning || reasoning, completionTokens),
    estimated: false,
  };
}

const NOTHING_APART = { cache: 0, reasoning: 0 } as const;

/**
 * What a provider bills and counts beside prompt and completion, which shows in its total: reasoning, which
 * xAI tells with the details too and Gemini by the total alone, or what a cache took part in.
 */
function tokensApart(total: unknown, parts: number, cache: number, reasoning: number) {
  const beyond = isCount(total) ? total - parts : 0;
  if (beyond <= 0) return NOTHING_APART;
  if (beyond === reasoning) return { cache: 0, reasoning };
  if (reasoning > 0) return NOTHING_APART;
  return beyond === cache ? { cache, reasoning: 0 } : { cache: 0, reasoning: beyond };
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

/** What the provider asks for this use, in femto-USD. A kind that the model has no price for costs nothing. */
export function providerCostFemto(usage: Usage, model: ModelPrices): ExactInteger {
  const { promptTokens, cachedPromptTokens, cacheWriteTokens, completionTokens } = usage;
  const prices = longPromptPrices(model, promptTokens) ?? model;
  const plain = promptTokens - cachedPromptTokens - cacheWriteTokens;
  let cost = plus(
    times(plain, exact(prices.inputTokenFemto)),
    times(completionTokens, exact(prices.outputTokenFemto)),
  );
  // Most calls have neither.
  if (cachedPromptTokens !== 0 || cacheWriteTokens !== 0) {
    const cached = times(cachedPromptTokens, exact(prices.cachedInputTokenFemto));
    cost = plus(cost, plus(cached, times(cacheWriteTokens, exact(prices.cacheWriteTokenFemto))));
  }
  for (const [kind, price, basis] of TOKENS_PRICED_APART) {
    const count = usage[kind];
    const priceFemto = model[price];
    // The sums above have counted these tokens at the price of text.
    if (count && priceFemto !== undefined) {
      cost = plus(cost, times(count, exact(priceFemto - prices[basis])));
    }
  }
  for (const [kind, price] of PRICED_BY_UNIT) {
    const count = usage[kind];
    if (count) cost = plus(cost, times(count, exact(model[price] ?? 0n)));
  }
  const { durationMs } = usage;
  return durationMs ? plus(cost, durationCostFemto(durationMs, model.secondFemto ?? 0n)) : cost;
}

/** Tokens that cost what those of text do unless the model has a price for them. */
const TOKENS_PRICED_APART = [
  ["reasoningTokens", "reasoningTokenFemto", "outputTokenFemto"],
  ["audioPromptTokens", "audioInputTokenFemto", "inputTokenFemto"],
  ["imagePromptTokens", "imageInputTokenFemto", "inputTokenFemto"],
  ["cachedAudioPromptTokens", "cachedAudioInputTokenFemto", "cachedInputTokenFemto"],
  ["cachedImagePromptTokens", "cachedImageInputTokenFemto", "cachedInputTokenFemto"],
  ["audioCompletionTokens", "audioOutputTokenFemto", "outputTokenFemto"],
  ["imageCompletionTokens", "imageOutputTokenFemto", "outputTokenFemto"],
] as const;

const PRICED_BY_UNIT = [
  ["images", "imageFemto"],
  ["characters", "characterFemto"],
  ["webSearches", "webSearchFemto"],
  ["fileSearches", "fileSearchFemto"],
] as const;

const MS_PER_SECOND = 1_000n;

/** Rounded up to a femto-USD, so that a bound over more milliseconds is never below it. */
function durationCostFemto(durationMs: number, secondFemto: bigint): ExactInteger {
  const scaled = BigInt(times(durationMs, exact(secondFemto)));
  return exact((scaled + MS_PER_SECOND - 1n) / MS_PER_SECOND);
}

/** The use as the ledger keeps it. */
export function usageFigures(usage: Usage): UsageFigures {
  return {
    promptTokens: usage.promptTokens,
    cachedPromptTokens: usage.cachedPromptTokens,
    completionTokens: usage.completionTokens,
    reasoningTokens: usage.reasoningTokens,
    quantities: quantitiesOf(usage),
    estimated: usage.estimated,
  };
}

/** The prices of a prompt of so many tokens, where they are not those of a shorter one. */
export function longPromptPrices(
  { longPrompt }: ModelPrices,
  promptTokens: number,
): TokenPrices | undefined {
  return longPrompt !== undefined && promptTokens > longPrompt.beyondTokens
    ? longPrompt
    : undefined;
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
