import type { FemtoUsd } from "./money.ts";

/*
 * Units of use and categories of models. The members of prices and usage, the stored quantities, the configuration
 * file, the answers of the API and the dashboard's prices derive from these rows.
 */

interface Category {
  /** Completes "it needs …" in the message for a model in the configuration file without the prices of its category. */
  readonly neededPrices: string;
  /** The token prices that suffice if no unit of the category has a price. */
  readonly tokenPrices: "input" | "both";
  /** OpenRouter's name of the output modality. Undefined if it differs between models of the category. */
  readonly output: string | undefined;
}

export const CATEGORIES = {
  chat: {
    neededPrices: "input_cost_per_token and output_cost_per_token",
    tokenPrices: "both",
    output: "text",
  },
  embedding: { neededPrices: "input_cost_per_token", tokenPrices: "input", output: "embeddings" },
  image: {
    neededPrices: "cost_per_image, image_prices or cost_per_pixel (or the costs per token)",
    tokenPrices: "both",
    output: "image",
  },
  code: {
    neededPrices: "input_cost_per_token and output_cost_per_token",
    tokenPrices: "both",
    output: "text",
  },
  audio: {
    neededPrices: "cost_per_character or cost_per_second (or the costs per token)",
    tokenPrices: "both",
    output: undefined,
  },
  rerank: {
    neededPrices: "cost_per_search_unit or input_cost_per_token",
    tokenPrices: "input",
    output: "rerank",
  },
  moderation: { neededPrices: "input_cost_per_token", tokenPrices: "input", output: "moderation" },
} as const satisfies Readonly<Record<string, Category>>;

export type ModelCategory = keyof typeof CATEGORIES;

export const MODEL_CATEGORIES = Object.keys(CATEGORIES) as ModelCategory[];

interface Price {
  /** Member of `ModelPrices`, in femto-USD for one unit. */
  readonly price: `${string}Femto`;
  readonly label: string;
  /** Column of the price in lists of models. Absent if it is not one of a model's main prices. */
  readonly column?: "input" | "output";
}

/** Tokens. The dashboard shows the price of a million. */
interface Tokens extends Price {
  /** "text": each model has the price. "tokens": they cost as much as text tokens if the model has no price for them. */
  readonly kind: "text" | "tokens";
  /** The price of text tokens that are counted at the same place. */
  readonly basis?: `${string}TokenFemto`;
  /** Member of `Usage`. */
  readonly count: string;
  /** Name in the ledger's quantities. Absent if the ledger has a column for the count. */
  readonly stored?: string;
}

interface Counted extends Price {
  /** "unit" costs count times price. "computed" has a formula in `src/billing/ledger/usage.ts`. */
  readonly kind: "unit" | "computed";
  /** Member of `Usage`, a whole number. */
  readonly count: string;
  /** Name in the ledger's quantities, and in answers. */
  readonly stored: string;
  /** Name in answers, which show seconds, if the count is in milliseconds. */
  readonly seconds?: string;
  /** Describes the count in the schema of transactions. Undefined if the schema omits it. */
  readonly description: string | undefined;
  /** True if `/v1/usage` omits the sum. Then list the stored name in `db/functions/usage_roll_up.sql`. */
  readonly isUnsummed?: true;
  /** Name of the price in the configuration file, and the category of the models that have it. */
  readonly setting?: { readonly name: string; readonly category: ModelCategory };
  /** Number of units in a shown price, and the name of that quantity. */
  readonly per: readonly [count: number, name: string];
}

/** A price without a count. */
interface Fee extends Price {
  readonly kind: "fee";
  readonly per: readonly [count: number, name: string];
}

/** Units by the names of their prices in the API, in the order in which they are shown. */
export const UNITS = {
  /** All tokens of the prompt, including cache reads and writes, audio and images. */
  prompt: {
    kind: "text",
    price: "inputTokenFemto",
    count: "promptTokens",
    label: "Input",
    column: "input",
  },
  input_cache_read: {
    kind: "text",
    price: "cachedInputTokenFemto",
    count: "cachedPromptTokens",
    label: "Cached input",
  },
  input_cache_write: {
    kind: "text",
    price: "cacheWriteTokenFemto",
    count: "cacheWriteTokens",
    stored: "cache_write_tokens",
    label: "Cache write",
  },
  /**
   * Tokens that are cached for an hour. Part of `cacheWriteTokens`. Without a price, requests for such a cache are rejected.
   */
  input_cache_write_1h: {
    kind: "tokens",
    price: "cacheWriteHourTokenFemto",
    basis: "cacheWriteTokenFemto",
    count: "cacheWriteHourTokens",
    stored: "cache_write_1h_tokens",
    label: "Cache write (1 hour)",
  },
  /** All tokens of the answer, including reasoning. */
  completion: {
    kind: "text",
    price: "outputTokenFemto",
    count: "completionTokens",
    label: "Output",
    column: "output",
  },
  /** Part of `completionTokens`. So are audio and images of the answer. */
  internal_reasoning: {
    kind: "tokens",
    price: "reasoningTokenFemto",
    basis: "outputTokenFemto",
    count: "reasoningTokens",
    label: "Reasoning",
  },
  /** Part of `promptTokens`, without cached tokens. So are images of the prompt. */
  input_audio: {
    kind: "tokens",
    price: "audioInputTokenFemto",
    basis: "inputTokenFemto",
    count: "audioPromptTokens",
    stored: "audio_prompt_tokens",
    label: "Audio input",
    column: "input",
  },
  /** Part of `cachedPromptTokens`. So are cached images. */
  input_audio_cache_read: {
    kind: "tokens",
    price: "cachedAudioInputTokenFemto",
    basis: "cachedInputTokenFemto",
    count: "cachedAudioPromptTokens",
    stored: "cached_audio_prompt_tokens",
    label: "Cached audio input",
  },
  output_audio: {
    kind: "tokens",
    price: "audioOutputTokenFemto",
    basis: "outputTokenFemto",
    count: "audioCompletionTokens",
    stored: "audio_completion_tokens",
    label: "Audio output",
    column: "output",
  },
  input_image: {
    kind: "tokens",
    price: "imageInputTokenFemto",
    basis: "inputTokenFemto",
    count: "imagePromptTokens",
    stored: "image_prompt_tokens",
    label: "Image input",
  },
  input_image_cache_read: {
    kind: "tokens",
    price: "cachedImageInputTokenFemto",
    basis: "cachedInputTokenFemto",
    count: "cachedImagePromptTokens",
    stored: "cached_image_prompt_tokens",
    label: "Cached image input",
  },
  output_image: {
    kind: "tokens",
    price: "imageOutputTokenFemto",
    basis: "outputTokenFemto",
    count: "imageCompletionTokens",
    stored: "image_completion_tokens",
    label: "Image output",
    column: "output",
  },
  /**
   * The price of an image that matches no variant. Model lists show it, and routing by price compares it.
   */
  image: {
    kind: "computed",
    price: "imageFemto",
    count: "images",
    stored: "images",
    description: "Generated images.",
    label: "Image",
    per: [1, "image"],
    column: "output",
  },
  /** Pixels of all generated images. */
  image_pixel: {
    kind: "unit",
    price: "imagePixelFemto",
    count: "imagePixels",
    stored: "image_pixels",
    description: undefined,
    isUnsummed: true,
    label: "Image by size",
    per: [1_000_000, "megapixel"],
    column: "output",
  },
  /** Images in the request, a mask included. */
  image_edited: {
    kind: "unit",
    price: "inputImageFemto",
    count: "inputImages",
    stored: "input_images",
    description: undefined,
    isUnsummed: true,
    label: "Input image",
    per: [1, "image"],
  },
  character: {
    kind: "unit",
    price: "characterFemto",
    count: "characters",
    stored: "characters",
    description: "Characters converted to speech.",
    setting: { name: "cost_per_character", category: "audio" },
    label: "Text",
    per: [1_000_000, "1M characters"],
    column: "input",
  },
  /**
   * Duration of audio. It is priced by the second, and counted in milliseconds because providers report fractions.
   */
  second: {
    kind: "computed",
    price: "secondFemto",
    count: "durationMs",
    stored: "duration_ms",
    seconds: "seconds",
    description: "Seconds of audio.",
    setting: { name: "cost_per_second", category: "audio" },
    label: "Audio",
    per: [60, "minute"],
    column: "input",
  },
  /** Lowest charge for audio that is priced by the second, however short. */
  sound_minimum: {
    kind: "fee",
    price: "leastSoundFemto",
    label: "Audio minimum",
    per: [1, "recording"],
  },
  /** Surcharge for audio whose speakers are distinguished. Part of `durationMs`. */
  second_of_speakers: {
    kind: "computed",
    price: "speakersSecondFemto",
    count: "speakersMs",
    stored: "speakers_ms",
    seconds: "speakers_seconds",
    description: "Seconds among these that were transcribed with speaker labels.",
    isUnsummed: true,
    label: "Audio with speaker labels",
    per: [60, "minute"],
  },
  /** Web searches, by the provider's built-in tools or by the gateway (`pricedForTools`). */
  web_search: {
    kind: "unit",
    price: "webSearchFemto",
    count: "webSearches",
    stored: "web_searches",
    description: "Web searches.",
    isUnsummed: true,
    label: "Web search",
    per: [1_000, "1K searches"],
  },
  file_search: {
    kind: "unit",
    price: "fileSearchFemto",
    count: "fileSearches",
    stored: "file_searches",
    description: "File searches.",
    isUnsummed: true,
    label: "File search",
    per: [1_000, "1K searches"],
  },
  /** A search unit is a rerank query with up to 100 document pieces. */
  search_unit: {
    kind: "unit",
    price: "searchUnitFemto",
    count: "searchUnits",
    stored: "search_units",
    description: "Search units of rerank requests.",
    setting: { name: "cost_per_search_unit", category: "rerank" },
    label: "Search",
    per: [1_000, "1K search units"],
    column: "input",
  },
  /** Fee for each call, independent of its tokens. */
  request: {
    kind: "fee",
    price: "requestFemto",
    label: "Request",
    per: [1_000, "1K requests"],
    column: "input",
  },
} as const satisfies Readonly<Record<string, Tokens | Counted | Fee>>;

type Units = typeof UNITS;
type Unit = Units[keyof Units];
/** Name of a price in the API. */
export type PriceName = keyof Units;
/** Names of the prices that each model has. */
export type TextPriceName = {
  [Name in PriceName]: Units[Name]["kind"] extends "text" ? Name : never;
}[PriceName];
type PriceOf<Kind> = Extract<Unit, { kind: Kind }>["price"];
type CountOf<Kind> = Extract<Unit, { kind: Kind; count: string }>["count"];
export type Count = CountOf<"text" | "tokens" | "unit" | "computed">;

/** Prices of further kinds of tokens. If one is absent, the price of text tokens applies. */
export type TokenKindPrices = { readonly [Price in PriceOf<"tokens">]?: FemtoUsd };
export type UnitPrices = { readonly [Price in PriceOf<"unit" | "computed" | "fee">]?: FemtoUsd };

/** Counts of calls that most calls do not have. Whole numbers; absent means none. */
export type RareCounts = {
  readonly [Name in Exclude<CountOf<"tokens" | "unit" | "computed">, "reasoningTokens">]?: number;
};

/** A unit that the configuration file can price. */
export type ConfiguredUnit = Extract<Unit, { setting: object }>;

const ALL: readonly Unit[] = Object.values(UNITS);

/** All prices, by their names in the API. */
export const PRICES = Object.entries(UNITS) as readonly (readonly [PriceName, Unit])[];
/** All counts. */
export const COUNTS: readonly Count[] = ALL.flatMap((unit) =>
  "count" in unit ? [unit.count] : [],
);
/** Counts without a column in the ledger, and their stored names. */
export const STORED_COUNTS = ALL.flatMap((unit) =>
  "stored" in unit ? [[unit.count, unit.stored] as const] : [],
);
/** Counts whose cost is count times price. */
export const PRICED_BY_UNIT = ALL.flatMap((unit) =>
  unit.kind === "unit" ? [[unit.count, unit.price] as const] : [],
);
/** Counts of tokens, their prices, and the prices that apply if the model has none. */
export const SEPARATELY_PRICED_TOKENS = ALL.flatMap((unit) =>
  unit.kind === "tokens" ? [[unit.count, unit.price, unit.basis] as const] : [],
);
export const CONFIGURED_UNITS = ALL.flatMap((unit) => ("setting" in unit ? [unit] : []));
/** Counted units that are not tokens. */
export const COUNTED_UNITS = ALL.flatMap((unit) =>
  unit.kind === "unit" || unit.kind === "computed" ? [unit] : [],
);
/** Counted units that `/v1/usage` sums. */
export const SUMMED_UNITS = COUNTED_UNITS.filter((unit) => !("isUnsummed" in unit));
