import type { Column } from "../components/table.tsx";
import { usdExact } from "../format.ts";

/** Prices by kind, for one unit, in USD as decimal text. */
export type Pricing = Readonly<Record<string, string>>;

interface Priced {
  readonly pricing: Pricing;
}

export interface Price {
  readonly kind: string;
  readonly label: string;
  /** USD for the quantity in `unit`. */
  readonly amount: number;
  readonly unit: string;
}

const TOKENS = "1M tokens";
const MILLION = 1_000_000;
const THOUSAND = 1_000;
const MINUTE_SECONDS = 60;

/** Kinds of use: label, number of units in a shown price, and name of that quantity. */
const KINDS: Readonly<Record<string, readonly [label: string, count: number, unit: string]>> = {
  prompt: ["Input", MILLION, TOKENS],
  input_cache_read: ["Cached input", MILLION, TOKENS],
  input_cache_write: ["Cache write", MILLION, TOKENS],
  input_cache_write_1h: ["Cache write (1 hour)", MILLION, TOKENS],
  completion: ["Output", MILLION, TOKENS],
  internal_reasoning: ["Reasoning", MILLION, TOKENS],
  input_audio: ["Audio input", MILLION, TOKENS],
  input_audio_cache_read: ["Cached audio input", MILLION, TOKENS],
  output_audio: ["Audio output", MILLION, TOKENS],
  input_image: ["Image input", MILLION, TOKENS],
  input_image_cache_read: ["Cached image input", MILLION, TOKENS],
  output_image: ["Image output", MILLION, TOKENS],
  image: ["Image", 1, "image"],
  image_pixel: ["Image by size", MILLION, "megapixel"],
  image_edited: ["Input image", 1, "image"],
  character: ["Text", MILLION, "1M characters"],
  second: ["Audio", MINUTE_SECONDS, "minute"],
  second_of_speakers: ["Audio with speaker labels", MINUTE_SECONDS, "minute"],
  sound_minimum: ["Audio minimum", 1, "recording"],
  search_unit: ["Search", THOUSAND, "1K search units"],
  web_search: ["Web search", THOUSAND, "1K searches"],
  file_search: ["File search", THOUSAND, "1K searches"],
  request: ["Request", THOUSAND, "1K requests"],
};
/** Price kinds in display order. */
export const PRICE_KINDS = Object.keys(KINDS);
/** Kinds with the price of input, unless the provider has a separate price. */
const LIKE_INPUT: ReadonlySet<string> = new Set(["input_cache_read", "input_cache_write"]);
/** Kinds that are not a model's main price: only some of its requests have them. */
const EXTRAS: ReadonlySet<string> = new Set(["web_search", "file_search", "image_edited"]);
/** Number of significant digits that are exact after float arithmetic. */
const EXACT_DIGITS = 12;

/** Returns every kind with a price, the usual ones first. */
export function pricesOf(pricing: Pricing): Price[] {
  return Object.entries(KINDS).flatMap(([kind, [label, count, unit]]) => {
    const text = pricing[kind];
    if (text === undefined || Number(text) === 0) return [];
    if (LIKE_INPUT.has(kind) && text === pricing.prompt) return [];
    const amount = Number((Number(text) * count).toPrecision(EXACT_DIGITS));
    return [{ kind, label, amount, unit }];
  });
}

export function priceText({ amount, unit }: Price): string {
  return unit === TOKENS ? usdExact(amount) : `${usdExact(amount)} / ${unit}`;
}

export function isFree({ pricing }: Priced): boolean {
  return pricesOf(pricing).length === 0;
}

/** Returns a summary such as "$0.10 in, $0.40 out per 1M tokens". */
export function priceSummary({ pricing }: Priced): string {
  const prices = pricesOf(pricing);
  const tokens = prices.filter(({ kind }) => kind === "prompt" || kind === "completion");
  if (tokens.length > 0) {
    const parts = tokens.map(
      ({ kind, amount }) => `${usdExact(amount)} ${kind === "prompt" ? "in" : "out"}`,
    );
    return `${parts.join(", ")} per ${TOKENS}`;
  }
  const mainPrice = prices.find(({ kind }) => !EXTRAS.has(kind));
  return mainPrice === undefined ? "Free" : priceText(mainPrice);
}

/** Returns the main input and output prices, which lists show and sort by. */
export function mainPrices({ pricing }: Priced): { input?: Price; output?: Price } {
  const prices = pricesOf(pricing).filter(({ kind }) => !EXTRAS.has(kind));
  const first = (...kinds: string[]) => {
    for (const kind of kinds) {
      const price = prices.find((candidate) => candidate.kind === kind);
      if (price !== undefined) return price;
    }
    return undefined;
  };
  return {
    input: first("prompt", "input_audio", "character", "second", "search_unit", "request"),
    output: first("completion", "output_image", "output_audio", "image", "image_pixel"),
  };
}

function priceCell(price: Price | undefined) {
  return price === undefined ? <span class="quiet">—</span> : priceText(price);
}

export const PRICE_COLUMNS: readonly Column<Priced>[] = [
  {
    title: "Input",
    isNumber: true,
    cell: (priced) => (isFree(priced) ? "Free" : priceCell(mainPrices(priced).input)),
  },
  { title: "Output", isNumber: true, cell: (priced) => priceCell(mainPrices(priced).output) },
];
