import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";

/**
 * Reads the tokens that Cohere bills (`billed_units`), because its prices apply to them. `tokens` also counts
 * tokens that Cohere itself adds to prompts and answers. `cached_tokens` is part of `tokens`, so the same
 * share of the billed prompt counts as cached. Thinking is part of the completion and not counted separately.
 * If nothing is billed, as on private deployments, `tokens` counts. Returns undefined if the counts are
 * missing or impossible, such as an empty prompt.
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
