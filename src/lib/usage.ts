/** The usage of one call, in the kinds that the catalogue prices. */
export interface Usage extends RareUse {
  /** All tokens of the prompt, including cache reads and writes, audio and images. */
  readonly promptTokens: number;
  readonly cachedPromptTokens: number;
  readonly cacheWriteTokens: number;
  /** All tokens of the answer, including reasoning. */
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  /** True if the gateway estimated the usage because the provider reported none. */
  readonly estimated: boolean;
  /** Size and quality of the images, as far as they are known. They select one of the model's `imageVariants`. */
  readonly imageVariant?: { readonly size?: string; readonly quality?: string };
  /**
   * If the request made several provider calls: the usage of all calls but the last. Included in the totals
   * above. Each call is priced separately, because the length of a prompt can decide its price.
   */
  readonly earlier?: readonly Usage[];
}

/** Kinds of usage that most calls do not have. Whole numbers; absent means none. */
interface RareUse {
  /** Tokens that are cached for an hour. Part of `cacheWriteTokens`. */
  readonly cacheWriteHourTokens?: number;
  /** Part of `promptTokens`, without cached tokens. */
  readonly audioPromptTokens?: number;
  readonly imagePromptTokens?: number;
  /** Part of `cachedPromptTokens`. */
  readonly cachedAudioPromptTokens?: number;
  readonly cachedImagePromptTokens?: number;
  /** Part of `completionTokens`. */
  readonly audioCompletionTokens?: number;
  readonly imageCompletionTokens?: number;
  /** Generated images. */
  readonly images?: number;
  /** Pixels of all generated images. */
  readonly imagePixels?: number;
  /** Images in the request. */
  readonly inputImages?: number;
  readonly characters?: number;
  /**
   * Duration of audio. It is priced by the second, and in milliseconds here because providers report fractions.
   */
  readonly durationMs?: number;
  /** Duration of audio whose speakers were distinguished. Part of `durationMs`. */
  readonly speakersMs?: number;
  /** Web searches by the gateway. */
  readonly webSearches?: number;
  readonly fileSearches?: number;
  /** Search units of rerank calls: a unit is a query with up to 100 document pieces. */
  readonly searchUnits?: number;
}

/** The base for the usage of calls without tokens: `{ ...NO_TOKENS, images: 2 }`. */
export const NO_TOKENS: Usage = Object.freeze({
  promptTokens: 0,
  cachedPromptTokens: 0,
  cacheWriteTokens: 0,
  completionTokens: 0,
  reasoningTokens: 0,
  estimated: false,
});

/** All kinds that are counted. */
const COUNTS = [
  "promptTokens",
  "cachedPromptTokens",
  "cacheWriteTokens",
  "completionTokens",
  "reasoningTokens",
  "cacheWriteHourTokens",
  "audioPromptTokens",
  "imagePromptTokens",
  "cachedAudioPromptTokens",
  "cachedImagePromptTokens",
  "audioCompletionTokens",
  "imageCompletionTokens",
  "images",
  "imagePixels",
  "inputImages",
  "characters",
  "durationMs",
  "speakersMs",
  "webSearches",
  "fileSearches",
  "searchUnits",
] as const satisfies readonly (keyof Usage)[];

/**
 * Returns the usage of several calls and of the gateway's tools. All calls but the last are also in `earlier`.
 */
export function usageOfCalls(
  earlier: readonly Usage[],
  last: Usage,
  besides: Pick<Usage, "webSearches" | "fileSearches">,
): Usage {
  const all: readonly Partial<Usage>[] = [...earlier, last, besides];
  const sum = { ...last, ...sumOf(all) };
  const estimated = all.some((usage) => usage.estimated === true);
  return earlier.length === 0 ? { ...sum, estimated } : { ...sum, estimated, earlier };
}

/** Returns the usage of the last of several calls and of the gateway's tools. */
export function usageOfLast({ earlier = [], ...total }: Usage): Usage {
  const before = sumOf(earlier);
  const last: Record<string, unknown> = { ...total };
  for (const kind of COUNTS) {
    const count = total[kind];
    if (count !== undefined) last[kind] = count - (before[kind] ?? 0);
  }
  return last as unknown as Usage;
}

/** Returns the sum of each kind that is present. */
function sumOf(
  usages: readonly Partial<Usage>[],
): Partial<Record<(typeof COUNTS)[number], number>> {
  const sum: Partial<Record<(typeof COUNTS)[number], number>> = {};
  for (const usage of usages) {
    for (const kind of COUNTS) {
      const count = usage[kind];
      if (count !== undefined) sum[kind] = (sum[kind] ?? 0) + count;
    }
  }
  return sum;
}

/** Returns estimated usage, for an answer whose provider reported none. */
export function estimatedUsage(promptTokens: number, completionTokens: number): Usage {
  return {
    promptTokens,
    cachedPromptTokens: 0,
    cacheWriteTokens: 0,
    completionTokens,
    reasoningTokens: 0,
    estimated: true,
  };
}

/** The kinds that have no column in the ledger, by their stored names. Each quantity is above zero. */
export type Quantities = Readonly<Record<string, number>>;

type QuantityKind = keyof RareUse | "cacheWriteTokens";

const STORED_NAMES: readonly (readonly [QuantityKind, string])[] = [
  ["cacheWriteTokens", "cache_write_tokens"],
  ["cacheWriteHourTokens", "cache_write_1h_tokens"],
  ["audioPromptTokens", "audio_prompt_tokens"],
  ["imagePromptTokens", "image_prompt_tokens"],
  ["cachedAudioPromptTokens", "cached_audio_prompt_tokens"],
  ["cachedImagePromptTokens", "cached_image_prompt_tokens"],
  ["audioCompletionTokens", "audio_completion_tokens"],
  ["imageCompletionTokens", "image_completion_tokens"],
  ["images", "images"],
  ["imagePixels", "image_pixels"],
  ["inputImages", "input_images"],
  ["characters", "characters"],
  ["durationMs", "duration_ms"],
  ["speakersMs", "speakers_ms"],
  ["webSearches", "web_searches"],
  ["fileSearches", "file_searches"],
  ["searchUnits", "search_units"],
];

/** Returns the quantities above zero, or null if there are none, as for most calls. */
export function quantitiesOf(usage: Usage): Quantities | null {
  let quantities: Record<string, number> | null = null;
  for (const [kind, name] of STORED_NAMES) {
    const quantity = usage[kind];
    if (quantity === undefined || quantity === 0) continue;
    quantities ??= {};
    quantities[name] = quantity;
  }
  return quantities;
}

const MS_PER_SECOND = 1_000;

/** Returns the quantities as the API shows them: members such as `images`, and audio in seconds. */
export function shownQuantities(quantities: Quantities | null): Record<string, number> {
  if (quantities?.duration_ms === undefined) return quantities ?? {};
  const { duration_ms: durationMs, speakers_ms: speakersMs, ...others } = quantities;
  return {
    ...others,
    seconds: durationMs / MS_PER_SECOND,
    ...(speakersMs !== undefined && { speakers_seconds: speakersMs / MS_PER_SECOND }),
  };
}
