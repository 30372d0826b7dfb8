import type { ConditionalPrice, ModelInfo, ModelPrice } from "@pydantic/genai-prices";
import type { LongPromptPrices, ModelPrices, TokenPrices } from "../../lib/catalogue-model.ts";
import { type FemtoUsd, femtoFromUsd, higher } from "../../lib/money.ts";

const TOKENS_PER_MTOK = 1_000_000n;
const SECONDS_PER_HOUR = 3600n;

/**
 * The kinds of use that the gateway meters, and those that only the provider's own search tools cause.
 * A model with a price for anything else (a fee for each request, audio tokens, pages) is left out of
 * the catalogue: charging its tokens alone would charge less than the provider does.
 */
const UNDERSTOOD = new Set([
  "input_mtok",
  "output_mtok",
  "cache_read_mtok",
  "cache_write_mtok",
  "audio_hours",
  "input_audio_hours",
  "web_searches_kcount",
  "storage_searches_kcount",
]);

/**
 * The prices of a model at `now`, undefined where one of its kinds of use has no known price. Of prices
 * that depend on the time of day the highest stands, kind by kind, so that neither a hold nor a charge is
 * below what the provider bills.
 */
export function publishedPrices(model: ModelInfo, now: Date): ModelPrices | undefined {
  const variants = inForce(model.prices, now);
  let highest: ModelPrices | undefined;
  for (const variant of variants) {
    const prices = flatPrices(variant);
    if (prices === undefined) return undefined;
    highest = highest === undefined ? prices : higherOfEach(highest, prices);
  }
  return highest;
}

/**
 * Conditional prices stand in ascending precedence: the last whose condition holds applies. So the last
 * one that holds all day hides those before it, and after it only times of day are left.
 */
function inForce(prices: ConditionalPrice[] | ModelPrice, now: Date): ModelPrice[] {
  if (!Array.isArray(prices)) return [prices];
  const allDay = prices.findLastIndex(
    ({ constraint }) =>
      constraint === undefined ||
      (constraint.type === "start_date" && now >= new Date(constraint.start_date)),
  );
  return prices
    .filter(
      ({ constraint }, index) =>
        index === Math.max(allDay, 0) || (index > allDay && constraint?.type === "time_of_date"),
    )
    .map((one) => one.prices);
}

function flatPrices(price: ModelPrice): ModelPrices | undefined {
  if (Object.keys(price).some((key) => !UNDERSTOOD.has(key))) return undefined;
  const base = tokenPrices(price, baseUsd);
  const second = perUnit(baseUsd(price.audio_hours ?? price.input_audio_hours), SECONDS_PER_HOUR);
  if (!base.inputTokenFemto && !second) return undefined;
  const longPrompt = longPromptPrices(price);
  return {
    ...base,
    ...(longPrompt === undefined ? {} : { longPrompt }),
    ...(second === undefined ? {} : { secondFemto: second }),
  };
}

type Price = ModelPrice[string];

function tokenPrices(price: ModelPrice, usdOf: (price: Price) => number | undefined): TokenPrices {
  const perToken = (one: Price) => perUnit(usdOf(one), TOKENS_PER_MTOK);
  const inputTokenFemto = perToken(price.input_mtok) ?? 0n;
  return {
    inputTokenFemto,
    outputTokenFemto: perToken(price.output_mtok) ?? 0n,
    cachedInputTokenFemto: perToken(price.cache_read_mtok) ?? inputTokenFemto,
    // Some lists give only what writing costs on top of the input price.
    cacheWriteTokenFemto: higher(perToken(price.cache_write_mtok) ?? 0n, inputTokenFemto),
  };
}

/**
 * What a call costs whose prompt is longer than the first step. Where there are several steps the dearest
 * stands behind the first.
 */
function longPromptPrices(price: ModelPrice): LongPromptPrices | undefined {
  const starts = Object.values(price).flatMap((one) => tiersOf(one).map(({ start }) => start));
  if (starts.length === 0) return undefined;
  return { beyondTokens: Math.min(...starts), ...tokenPrices(price, steppedUsd) };
}

function baseUsd(price: Price): number | undefined {
  return typeof price === "object" ? price.base : price;
}

function steppedUsd(price: Price): number | undefined {
  const tiers = tiersOf(price);
  return tiers.length === 0 ? baseUsd(price) : Math.max(...tiers.map((tier) => tier.price));
}

function tiersOf(price: Price) {
  return typeof price === "object" ? price.tiers : [];
}

/** USD for `units` of something as femto-USD of one of them, rounded up. */
function perUnit(usd: number | undefined, units: bigint): FemtoUsd | undefined {
  return usd === undefined ? undefined : (femtoFromUsd(usd) + units - 1n) / units;
}

function higherOfEach(one: ModelPrices, other: ModelPrices): ModelPrices {
  const second = higher(one.secondFemto ?? 0n, other.secondFemto ?? 0n);
  const starts = [one, other].flatMap(({ longPrompt }) => longPrompt?.beyondTokens ?? []);
  return {
    ...higherTokenPrices(one, other),
    ...(starts.length > 0 && {
      longPrompt: {
        beyondTokens: Math.min(...starts),
        ...higherTokenPrices(one.longPrompt ?? one, other.longPrompt ?? other),
      },
    }),
    ...(second === 0n ? {} : { secondFemto: second }),
  };
}

function higherTokenPrices(one: TokenPrices, other: TokenPrices): TokenPrices {
  return {
    inputTokenFemto: higher(one.inputTokenFemto, other.inputTokenFemto),
    outputTokenFemto: higher(one.outputTokenFemto, other.outputTokenFemto),
    cachedInputTokenFemto: higher(one.cachedInputTokenFemto, other.cachedInputTokenFemto),
    cacheWriteTokenFemto: higher(one.cacheWriteTokenFemto, other.cacheWriteTokenFemto),
  };
}
