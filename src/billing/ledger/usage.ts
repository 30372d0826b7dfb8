import type { UsageFigures } from "../../../db/ledger/rows.ts";
import type { LongPromptPrices, ModelPrices, ToolPrices } from "../../lib/catalogue-model.ts";
import { type ExactInteger, exact, plus, times } from "../../lib/exact-integer.ts";
import { PRICED_BY_UNIT, SEPARATELY_PRICED_TOKENS } from "../../lib/units.ts";
import { quantitiesOf, type Usage, usageOfLast } from "../../lib/usage.ts";
import { imagePriceFemto } from "./image-prices.ts";

/** Returns the provider cost of the usage in femto-USD. A kind without a price costs nothing. */
export function providerCostFemto(usage: Usage, model: ModelPrices): ExactInteger {
  const { earlier } = usage;
  return earlier === undefined
    ? costOfCall(usage, model)
    : [...earlier, usageOfLast(usage)]
        .map((call) => costOfCall(call, model))
        .reduce((sum, cost) => plus(sum, cost), 0);
}

/** Returns the cost of the gateway's tools, which no provider bills. Returns 0 if the request ran none. */
export function toolCostFemto(
  { webSearches = 0, fileSearches = 0 }: Pick<Usage, "webSearches" | "fileSearches">,
  prices: ToolPrices | undefined,
): ExactInteger {
  if (prices === undefined || webSearches + fileSearches === 0) return 0;
  const { webSearchFemto, fileSearchFemto } = prices;
  return plus(
    times(webSearches, exact(webSearchFemto)),
    times(fileSearches, exact(fileSearchFemto)),
  );
}

function costOfCall(usage: Usage, model: ModelPrices): ExactInteger {
  const { promptTokens, cachedPromptTokens, cacheWriteTokens, completionTokens } = usage;
  const prices = longPromptPrices(model, promptTokens) ?? model;
  const plain = promptTokens - cachedPromptTokens - cacheWriteTokens;
  let cost = plus(
    times(plain, exact(prices.inputTokenFemto)),
    times(completionTokens, exact(prices.outputTokenFemto)),
  );
  // Most calls have no cached tokens.
  if (cachedPromptTokens !== 0 || cacheWriteTokens !== 0) {
    const cached = times(cachedPromptTokens, exact(prices.cachedInputTokenFemto));
    cost = plus(cost, plus(cached, times(cacheWriteTokens, exact(prices.cacheWriteTokenFemto))));
  }
  for (const [kind, price, basis] of SEPARATELY_PRICED_TOKENS) {
    const count = usage[kind];
    const priceFemto = prices[price] ?? model[price];
    // The sums above already contain these tokens at the price of text.
    if (count && priceFemto !== undefined) {
      cost = plus(cost, times(count, exact(priceFemto - prices[basis])));
    }
  }
  for (const [kind, price] of PRICED_BY_UNIT) {
    const count = usage[kind];
    if (count) cost = plus(cost, times(count, exact(model[price] ?? 0n)));
  }
  if (usage.images) {
    const priceFemto = imagePriceFemto(model, usage.imageVariant ?? {});
    cost = plus(cost, times(usage.images, exact(priceFemto)));
  }
  return usage.durationMs ? plus(cost, soundCostFemto(usage.durationMs, usage, model)) : cost;
}

function soundCostFemto(
  durationMs: number,
  { speakersMs = 0 }: Usage,
  { secondFemto = 0n, speakersSecondFemto = 0n, leastSoundFemto = 0n }: ModelPrices,
): ExactInteger {
  const plain = durationCostFemto(durationMs, secondFemto);
  const least = BigInt(plain) < leastSoundFemto ? exact(leastSoundFemto) : plain;
  return plus(least, durationCostFemto(speakersMs, speakersSecondFemto));
}

const MS_PER_SECOND = 1_000n;

/**
 * Returns the cost of a duration, rounded up to a femto-USD: a bound over more milliseconds is never below it.
 */
function durationCostFemto(durationMs: number, secondFemto: bigint): ExactInteger {
  const scaled = BigInt(times(durationMs, exact(secondFemto)));
  return exact((scaled + MS_PER_SECOND - 1n) / MS_PER_SECOND);
}

/** Returns the usage as the ledger stores it. */
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

/** Returns the long-prompt prices of a model if they apply to a prompt of this length. */
export function longPromptPrices(
  { longPrompt }: ModelPrices,
  promptTokens: number,
): LongPromptPrices | undefined {
  return longPrompt !== undefined && promptTokens > longPrompt.beyondTokens
    ? longPrompt
    : undefined;
}
