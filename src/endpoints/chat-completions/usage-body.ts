import type { Usage } from "../../lib/usage.ts";

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
