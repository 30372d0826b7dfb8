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

/** Tokens that are priced separately from text tokens: the list's names and the gateway's. */
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

/** Other kinds of use: the list's names, the gateway's names, and the units that a listed price is for. */
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

/** The prices of a model at one time, or the reason why it has none. */
type PublishedPrices =
  | { readonly prices: ModelPrices }
  | { readonly prices?: undefined; readonly reason: string };

/**
 * Returns the prices of a model at `now`. If prices depend on the time of day, the highest of each kind applies, so
 * that neither a hold nor a charge is below the provider's bill. A model with a price for an unknown kind of use has no
 * prices, because the other kinds alone would charge less than the provider.
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

/** Returns the price of text embeddings. The gateway embeds only texts, so no other kind of use occurs. */
function ofTexts({ input_mtok }: ModelPrice): ModelPrice {
  return { input_mtok };
}

/**
 * Returns the prices that can apply on the day of `now`. Conditional prices are in ascending precedence: the last one
 * whose condition holds applies. The last one that holds all day hides those before it; after it only prices by time of
 * day remain.
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
    .map((entry) => entry.prices);
}

function flatPrices(price: ModelPrice): ModelPrices | undefined {
  const base = tokenPrices(price, baseUsd);
  const kinds: { -readonly [Kind in KindOfUse]?: FemtoUsd } = {};
  for (const [name, { field, units }] of Object.entries(KINDS)) {
    // If the price of a kind rises with the prompt's length, the highest one applies.
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
  const perToken = (kind: Price) => perUnit(usdOf(kind), TOKENS_PER_MTOK);
  const inputTokenFemto = perToken(price.input_mtok) ?? 0n;
  return {
    inputTokenFemto,
    outputTokenFemto: perToken(price.output_mtok) ?? 0n,
    cachedInputTokenFemto: perToken(price.cache_read_mtok) ?? inputTokenFemto,
    // Some lists state only the surcharge of writing on the input price.
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
 * Returns the prices of a call whose prompt is longer than the first step. If there are several steps, the most
 * expensive one applies after the first.
 */
function longPromptPrices(price: ModelPrice): LongPromptPrices | undefined {
  const starts = Object.values(price).flatMap((kind) => tiersOf(kind).map(({ start }) => start));
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

/** Returns a price in USD for `units` units as femto-USD for one unit, rounded up. */
function perUnit(usd: number | undefined, units: bigint): FemtoUsd | undefined {
  return usd === undefined ? undefined : (femtoFromUsd(usd) + units - 1n) / units;
}

function higherOfEach(first: ModelPrices, second: ModelPrices): ModelPrices {
  const kinds: { -readonly [Kind in KindOfUse]?: FemtoUsd } = {};
  for (const { field } of Object.values(KINDS)) {
    const femto = higher(first[field] ?? -1n, second[field] ?? -1n);
    if (femto >= 0n) kinds[field] = femto;
  }
  const starts = [first, second].flatMap(({ longPrompt }) => longPrompt?.beyondTokens ?? []);
  return {
    ...higherTokenPrices(first, second),
    ...(starts.length > 0 && {
      longPrompt: {
        beyondTokens: Math.min(...starts),
        ...higherTokenPrices(first.longPrompt ?? first, second.longPrompt ?? second),
      },
    }),
    ...kinds,
  };
}

type AllTokenPrices = TokenPrices & TokenKindPrices;

function higherTokenPrices(first: AllTokenPrices, second: AllTokenPrices): AllTokenPrices {
  const kinds: { -readonly [Kind in keyof TokenKindPrices]: FemtoUsd } = {};
  for (const field of Object.values(TOKEN_KINDS)) {
    const femto = higher(first[field] ?? -1n, second[field] ?? -1n);
    if (femto >= 0n) kinds[field] = femto;
  }
  return {
    ...kinds,
    inputTokenFemto: higher(first.inputTokenFemto, second.inputTokenFemto),
    outputTokenFemto: higher(first.outputTokenFemto, second.outputTokenFemto),
    cachedInputTokenFemto: higher(first.cachedInputTokenFemto, second.cachedInputTokenFemto),
    cacheWriteTokenFemto: higher(first.cacheWriteTokenFemto, second.cacheWriteTokenFemto),
  };
}

/** Prices in USD for a million tokens. */
interface Published {
  readonly training: number;
  readonly input: number;
  readonly cachedInput: number;
  readonly output: number;
}

/**
 * OpenAI's published fine-tuning prices (https://platform.openai.com/docs/pricing, "Fine-tuning"). No list of the
 * packages has training prices. Compared with copies of that page of August 2026, standard processing without data
 * sharing. Base models have their dated names, as in the jobs.
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

/** Returns the fine-tuning prices of a provider's model. Undefined if they are unknown; tuning is then not offered. */
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
