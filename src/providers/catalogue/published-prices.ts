import type { ConditionalPrice, ModelInfo, ModelPrice } from "@pydantic/genai-prices";
import type { ModelPrices } from "../../lib/catalogue-model.ts";
import { type FemtoUsd, femtoFromUsd } from "../../lib/money.ts";

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
 * that depend on the time of day or on the length of the prompt the highest stands, kind by kind, so
 * that neither a hold nor a charge is below what the provider bills.
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
  const input = perUnit(price.input_mtok, TOKENS_PER_MTOK);
  const output = perUnit(price.output_mtok, TOKENS_PER_MTOK);
  const second = perUnit(price.audio_hours ?? price.input_audio_hours, SECONDS_PER_HOUR);
  if (!input && !second) return undefined;
  const cacheWrite = perUnit(price.cache_write_mtok, TOKENS_PER_MTOK) ?? 0n;
  const inputTokenFemto = input ?? 0n;
  return {
    inputTokenFemto,
    outputTokenFemto: output ?? 0n,
    cachedInputTokenFemto: perUnit(price.cache_read_mtok, TOKENS_PER_MTOK) ?? inputTokenFemto,
    // Some lists give only what writing costs on top of the input price.
    cacheWriteTokenFemto: cacheWrite > inputTokenFemto ? cacheWrite : inputTokenFemto,
    ...(second === undefined ? {} : { secondFemto: second }),
  };
}

/** USD for `units` of something, in tiers or not, as femto-USD of one of them, rounded up. */
function perUnit(price: ModelPrice[string], units: bigint): FemtoUsd | undefined {
  if (price === undefined) return undefined;
  const usd =
    typeof price === "number"
      ? price
      : Math.max(price.base, ...price.tiers.map((tier) => tier.price));
  return (femtoFromUsd(usd) + units - 1n) / units;
}

function higherOfEach(one: ModelPrices, other: ModelPrices): ModelPrices {
  const second = higher(one.secondFemto ?? 0n, other.secondFemto ?? 0n);
  return {
    inputTokenFemto: higher(one.inputTokenFemto, other.inputTokenFemto),
    outputTokenFemto: higher(one.outputTokenFemto, other.outputTokenFemto),
    cachedInputTokenFemto: higher(one.cachedInputTokenFemto, other.cachedInputTokenFemto),
    cacheWriteTokenFemto: higher(one.cacheWriteTokenFemto, other.cacheWriteTokenFemto),
    ...(second === 0n ? {} : { secondFemto: second }),
  };
}

function higher(one: FemtoUsd, other: FemtoUsd): FemtoUsd {
  return one > other ? one : other;
}
