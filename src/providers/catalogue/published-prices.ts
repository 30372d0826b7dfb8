import type { ConditionalPrice, ModelInfo, ModelPrice } from "@pydantic/genai-prices";
import type {
  FineTuningTerms,
  LongPromptPrices,
  ModelPrices,
  TokenKindPrices,
  TokenPrices,
} from "../../lib/catalogue-model.ts";
import { type FemtoUsd, femtoFromUsd, higher } from "../../lib/money.ts";

const TOKENS_PER_MTOK = 1_000_000n;
const SECONDS_PER_HOUR = 3600n;

const PER_THOUSAND = 1_000n;

/** Tokens that have a price apart from those of text: the list's names and ours. */
const TOKEN_KINDS: Readonly<Record<string, keyof TokenKindPrices>> = {
  cache_write_1h_mtok: "cacheWriteHourTokenFemto",
  output_reasoning_mtok: "reasoningTokenFemto",
  input_audio_mtok: "audioInputTokenFemto",
  cache_audio_read_mtok: "cachedAudioInputTokenFemto",
  output_audio_mtok: "audioOutputTokenFemto",
  input_image_mtok: "imageInputTokenFemto",
  cache_image_read_mtok: "cachedImageInputTokenFemto",
  output_image_mtok: "imageOutputTokenFemto",
};

/** Other kinds of use, likewise. */
const KINDS: Readonly<Record<string, { readonly field: KindOfUse; readonly units: bigint }>> = {
  audio_hours: { field: "secondFemto", units: SECONDS_PER_HOUR },
  input_audio_hours: { field: "secondFemto", units: SECONDS_PER_HOUR },
  web_searches_kcount: { field: "webSearchFemto", units: PER_THOUSAND },
  storage_searches_kcount: { field: "fileSearchFemto", units: PER_THOUSAND },
  requests_kcount: { field: "requestFemto", units: PER_THOUSAND },
};
type KindOfUse = Exclude<
  keyof ModelPrices,
  keyof TokenPrices | keyof TokenKindPrices | "longPrompt" | "imageVariants"
>;
const TEXT_KINDS = ["input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok"];
const KNOWN_KINDS = new Set([...TEXT_KINDS, ...Object.keys(TOKEN_KINDS), ...Object.keys(KINDS)]);

/** The prices of a model at one time, or why they cannot be stated. */
type PublishedPrices =
  | { readonly prices: ModelPrices }
  | { readonly prices?: undefined; readonly reason: string };

/**
 * The prices of a model at `now`. Of prices that depend on the time of day the highest stands, kind by
 * kind, so that neither a hold nor a charge is below what the provider bills. A model with a price for a
 * kind of use that has no field here has none: charging the rest alone would charge less than the provider.
 */
export function publishedPrices(model: ModelInfo, now: Date): PublishedPrices {
  let highest: ModelPrices | undefined;
  for (const listed of inForce(model.prices, now)) {
    const variant = /embed/i.test(model.id) ? ofTexts(listed) : listed;
    const unknown = Object.keys(variant).find((key) => !KNOWN_KINDS.has(key));
    if (unknown !== undefined) return { reason: `its price of ${unknown} cannot be metered` };
    const prices = flatPrices(variant);
    if (prices === undefined) return { reason: "the price list has no price for it" };
    highest = highest === undefined ? prices : higherOfEach(highest, prices);
  }
  return highest === undefined
    ? { reason: "the price list has no price for it" }
    : { prices: highest };
}

/** Of what can be embedded, texts alone are taken here: no other kind of use occurs. */
function ofTexts({ input_mtok }: ModelPrice): ModelPrice {
  return { input_mtok };
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
  const base = tokenPrices(price, baseUsd);
  const kinds: { -readonly [Kind in KindOfUse]?: FemtoUsd } = {};
  for (const [name, { field, units }] of Object.entries(KINDS)) {
    // Where a kind steps up with the prompt, the highest step stands.
    const femto = perUnit(highestUsd(price[name]), units);
    if (femto !== undefined) kinds[field] = higher(kinds[field] ?? 0n, femto);
  }
  if (!base.inputTokenFemto && !kinds.secondFemto) return undefined;
  const longPrompt = longPromptPrices(price);
  return {
    ...base,
    ...tokenKindPrices(price, baseUsd),
    ...(longPrompt === undefined ? {} : { longPrompt }),
    ...kinds,
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

function tokenKindPrices(
  price: ModelPrice,
  usdOf: (price: Price) => number | undefined,
): TokenKindPrices {
  const kinds: { -readonly [Kind in keyof TokenKindPrices]: FemtoUsd } = {};
  for (const [name, field] of Object.entries(TOKEN_KINDS)) {
    const femto = perUnit(usdOf(price[name]), TOKENS_PER_MTOK);
    if (femto !== undefined) kinds[field] = femto;
  }
  return kinds;
}

/**
 * What a call costs whose prompt is longer than the first step. Where there are several steps the dearest
 * stands behind the first.
 */
function longPromptPrices(price: ModelPrice): LongPromptPrices | undefined {
  const starts = Object.values(price).flatMap((one) => tiersOf(one).map(({ start }) => start));
  if (starts.length === 0) return undefined;
  return {
    beyondTokens: Math.min(...starts),
    ...tokenPrices(price, steppedUsd),
    ...tokenKindPrices(price, steppedUsd),
  };
}

function baseUsd(price: Price): number | undefined {
  return typeof price === "object" ? price.base : price;
}

function highestUsd(price: Price): number | undefined {
  const base = baseUsd(price);
  return base === undefined ? undefined : Math.max(base, steppedUsd(price) ?? 0);
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
  const kinds: { -readonly [Kind in KindOfUse]?: FemtoUsd } = {};
  for (const { field } of Object.values(KINDS)) {
    const femto = higher(one[field] ?? -1n, other[field] ?? -1n);
    if (femto >= 0n) kinds[field] = femto;
  }
  const starts = [one, other].flatMap(({ longPrompt }) => longPrompt?.beyondTokens ?? []);
  return {
    ...higherTokenPrices(one, other),
    ...(starts.length > 0 && {
      longPrompt: {
        beyondTokens: Math.min(...starts),
        ...higherTokenPrices(one.longPrompt ?? one, other.longPrompt ?? other),
      },
    }),
    ...kinds,
  };
}

type AllTokenPrices = TokenPrices & TokenKindPrices;

function higherTokenPrices(one: AllTokenPrices, other: AllTokenPrices): AllTokenPrices {
  const kinds: { -readonly [Kind in keyof TokenKindPrices]: FemtoUsd } = {};
  for (const field of Object.values(TOKEN_KINDS)) {
    const femto = higher(one[field] ?? -1n, other[field] ?? -1n);
    if (femto >= 0n) kinds[field] = femto;
  }
  return {
    ...kinds,
    inputTokenFemto: higher(one.inputTokenFemto, other.inputTokenFemto),
    outputTokenFemto: higher(one.outputTokenFemto, other.outputTokenFemto),
    cachedInputTokenFemto: higher(one.cachedInputTokenFemto, other.cachedInputTokenFemto),
    cacheWriteTokenFemto: higher(one.cacheWriteTokenFemto, other.cacheWriteTokenFemto),
  };
}

/** USD for a million tokens. */
interface Published {
  readonly training: number;
  readonly input: number;
  readonly cachedInput: number;
  readonly output: number;
}

/**
 * What OpenAI publishes (https://platform.openai.com/docs/pricing, "Fine-tuning"); no list of the
 * packages has prices of training. Compared with copies of that page of August 2026, standard processing
 * without data sharing. Base models are named with their date, as the jobs name them.
 */
const PUBLISHED: Readonly<Record<string, Readonly<Record<string, Published>>>> = {
  openai: {
    "gpt-4.1-2025-04-14": { training: 25, input: 3, cachedInput: 0.75, output: 12 },
    "gpt-4.1-mini-2025-04-14": { training: 5, input: 0.8, cachedInput: 0.2, output: 3.2 },
    "gpt-4.1-nano-2025-04-14": { training: 1.5, input: 0.2, cachedInput: 0.05, output: 0.8 },
    "gpt-4o-2024-08-06": { training: 25, input: 3.75, cachedInput: 1.875, output: 15 },
    "gpt-4o-mini-2024-07-18": { training: 3, input: 0.3, cachedInput: 0.15, output: 1.2 },
    "gpt-3.5-turbo-0125": { training: 8, input: 3, cachedInput: 3, output: 6 },
  },
};

/** What tuning a provider's model costs; undefined where that is not known, so that it is not offered. */
export function publishedTerms(providerType: string, model: string): FineTuningTerms | undefined {
  const ofProvider = Object.hasOwn(PUBLISHED, providerType) ? PUBLISHED[providerType]! : {};
  const published = Object.hasOwn(ofProvider, model) ? ofProvider[model]! : undefined;
  if (published === undefined) return undefined;
  const inputTokenFemto = perToken(published.input);
  const tunedPrices: ModelPrices = {
    inputTokenFemto,
    outputTokenFemto: perToken(published.output),
    cachedInputTokenFemto: perToken(published.cachedInput),
    cacheWriteTokenFemto: inputTokenFemto,
  };
  return { trainingTokenFemto: perToken(published.training), tunedPrices };
}

function perToken(usdForMillion: number): bigint {
  return femtoFromUsd(usdForMillion) / 1_000_000n;
}
