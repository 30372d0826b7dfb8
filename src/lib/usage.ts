import { COUNTED_UNITS, COUNTS, type Count, type RareCounts, STORED_COUNTS } from "./units.ts";

/** The usage of one call, in the kinds that the catalogue prices (`UNITS`). */
export interface Usage extends RareCounts {
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

/** The base for the usage of calls without tokens: `{ ...NO_TOKENS, images: 2 }`. */
export const NO_TOKENS: Usage = Object.freeze({
  promptTokens: 0,
  cachedPromptTokens: 0,
  cacheWriteTokens: 0,
  completionTokens: 0,
  reasoningTokens: 0,
  estimated: false,
});

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
function sumOf(usages: readonly Partial<Usage>[]): Partial<Record<Count, number>> {
  const sum: Partial<Record<Count, number>> = {};
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

/** Returns the quantities above zero, or null if there are none, as for most calls. */
export function quantitiesOf(usage: Usage): Quantities | null {
  let quantities: Record<string, number> | null = null;
  for (const [kind, name] of STORED_COUNTS) {
    const quantity = usage[kind];
    if (quantity === undefined || quantity === 0) continue;
    quantities ??= {};
    quantities[name] = quantity;
  }
  return quantities;
}

const MS_PER_SECOND = 1_000;

const SHOWN_IN_SECONDS = COUNTED_UNITS.flatMap((unit) =>
  "seconds" in unit ? [{ stored: unit.stored, name: unit.seconds }] : [],
);

/** Returns the quantities as the API shows them: members such as `images`, and audio in seconds. */
export function shownQuantities(quantities: Quantities | null): Record<string, number> {
  const shown = { ...quantities };
  for (const { stored, name } of SHOWN_IN_SECONDS) {
    const durationMs = shown[stored];
    if (durationMs === undefined) continue;
    delete shown[stored];
    shown[name] = durationMs / MS_PER_SECOND;
  }
  return shown;
}
