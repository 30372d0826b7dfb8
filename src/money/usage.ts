import type { ModelPrices, TokenPrices } from "../lib/catalogue-model.ts";
import { type ExactInteger, exact, plus, times } from "../lib/exact-integer.ts";
import type { Usage } from "../lib/usage.ts";

/** What the provider asks for these tokens, in femto-USD. */
export function providerCostFemto(usage: Usage, model: ModelPrices): ExactInteger {
  const { cachedPromptTokens, cacheWriteTokens } = usage;
  const prices = longPromptPrices(model, usage.promptTokens) ?? model;
  const plain = usage.promptTokens - cachedPromptTokens - cacheWriteTokens;
  const cost = plus(
    times(plain, exact(prices.inputTokenFemto)),
    outputCostFemto(usage, model, prices),
  );
  // Most calls have neither.
  if (cachedPromptTokens === 0 && cacheWriteTokens === 0) return cost;
  const cached = times(cachedPromptTokens, exact(prices.cachedInputTokenFemto));
  return plus(cost, plus(cached, times(cacheWriteTokens, exact(prices.cacheWriteTokenFemto))));
}

/** Reasoning costs what the rest of the answer does, unless it has a price of its own. */
function outputCostFemto(
  { completionTokens, reasoningTokens }: Usage,
  { reasoningTokenFemto }: ModelPrices,
  { outputTokenFemto }: TokenPrices,
): ExactInteger {
  if (reasoningTokenFemto === undefined || reasoningTokens === 0) {
    return times(completionTokens, exact(outputTokenFemto));
  }
  return plus(
    times(completionTokens - reasoningTokens, exact(outputTokenFemto)),
    times(reasoningTokens, exact(reasoningTokenFemto)),
  );
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
