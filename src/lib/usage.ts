/** What one call used, in the kinds that the catalogue prices. */
export interface Usage extends RareUse {
  /** All tokens of the prompt: cached reads and writes, and those of sound and images, included. */
  readonly promptTokens: number;
  readonly cachedPromptTokens: number;
  readonly cacheWriteTokens: number;
  /** All tokens of the answer, reasoning included. */
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  /** True where the gateway counted, because the provider reported no usage. */
  readonly estimated: boolean;
  /** Which of the model's `imageVariants` the images are, as far as that is known. */
  readonly imageVariant?: { readonly size?: string; readonly quality?: string };
  /**
   * Part of all of the above: the calls before the last one, where it took several. Each is priced by itself, for a
   * prompt's length may decide the price.
   */
  readonly earlier?: readonly Usage[];
}

/** Kinds that most calls do not have; absent is none. Whole numbers. */
interface RareUse {
  /** Part of `cacheWriteTokens`: kept for an hour. */
  readonly cacheWriteHourTokens?: number;
  /** Part of `promptTokens`, and not read from a cache. */
  readonly audioPromptTokens?: number;
  readonly imagePromptTokens?: number;
  /** Part of `cachedPromptTokens`. */
  readonly cachedAudioPromptTokens?: number;
  readonly cachedImagePromptTokens?: number;
  /** Part of `completionTokens`. */
  readonly audioCompletionTokens?: number;
  readonly imageCompletionTokens?: number;
  /** That were made. */
  readonly images?: number;
  /** Of all of them together. */
  readonly imagePixels?: number;
  /** That came with the request. */
  readonly inputImages?: number;
  readonly characters?: number;
  /** Of sound. Priced by the second, and kept in milliseconds because providers report fractions. */
  readonly durationMs?: number;
  /** Part of `durationMs`: its speakers were distinguished. */
  readonly speakersMs?: number;
  /** By the gateway itself. */
  readonly webSearches?: number;
  readonly fileSearches?: number;
  /** Of rankings: queries with up to 100 pieces of documents. */
  readonly searchUnits?: number;
}

/** For calls whose use is not counted in tokens: `{ ...NO_TOKENS, images: 2 }`. */
export const NO_TOKENS: Usage = Object.freeze({
  promptTokens: 0,
  cachedPromptTokens: 0,
  cacheWriteTokens: 0,
  completionTokens: 0,
  reasoningTokens: 0,
  estimated: false,
});

/** All that is counted. */
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

/** What several calls have used, the last one behind `earlier`, and what was used besides them. */
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

/** What the last of several calls has used, and what was used besides them. */
export function usageOfLast({ earlier = [], ...total }: Usage): Usage {
  const before = sumOf(earlier);
  const last: Record<string, unknown> = { ...total };
  for (const kind of COUNTS) {
    const count = total[kind];
    if (count !== undefined) last[kind] = count - (before[kind] ?? 0);
  }
  return last as unknown as Usage;
}

/** Kinds that are there. */
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

/** Usage of an answer whose provider reported none, as it was counted here. */
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

/** The kinds that have no column of their own in the ledger, each above zero, by the names that it stores. */
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

/** Null where there are none, as for most calls. */
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

/** As callers see them: members such as `images`, sound in seconds. */
export function shownQuantities(quantities: Quantities | null): Record<string, number> {
  if (quantities?.duration_ms === undefined) return quantities ?? {};
  const { duration_ms: durationMs, speakers_ms: speakersMs, ...others } = quantities;
  return {
    ...others,
    seconds: durationMs / MS_PER_SECOND,
    ...(speakersMs !== undefined && { speakers_seconds: speakersMs / MS_PER_SECOND }),
  };
}
