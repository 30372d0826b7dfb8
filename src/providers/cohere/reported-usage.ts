import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";

/**
 * What Cohere bills (`billed_units`), which its prices are of: tokens that it adds to prompts and answers itself
 * are in `tokens` alone. `cached_tokens` are of those, so of the billed prompt the same share counts as cached.
 * Thinking is part of the answer, and not told apart. Where nothing is billed, as on servers of one's own, the
 * tokens count. Undefined where there is no usage, or one that cannot be true: no prompt is empty.
 *
 * https://docs.cohere.com/docs/how-does-cohere-pricing-work
 */
export function reportedUsage(raw: unknown): Usage | undefined {
  if (!isFields(raw)) return undefined;
  const { billed_units: billed, tokens } = raw;
  const promptTokens = countOf(billed, "input_tokens") || countOf(tokens, "input_tokens");
  const completionTokens = countOf(billed, "output_tokens") ?? countOf(tokens, "output_tokens");
  if (!promptTokens || completionTokens === undefined) return undefined;
  const processed = countOf(tokens, "input_tokens") || promptTokens;
  const share = Math.min(1, (countOf(raw, "cached_tokens") ?? 0) / processed);
  return {
    promptTokens,
    cachedPromptTokens: Math.floor(promptTokens * share),
    cacheWriteTokens: 0,
    completionTokens,
    reasoningTokens: 0,
    estimated: false,
  };
}

function countOf(holder: unknown, name: string): number | undefined {
  const value = isFields(holder) ? holder[name] : undefined;
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}
