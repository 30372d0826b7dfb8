import { PRICES, type PriceName, UNITS } from "../../../lib/units.ts";
import type { Column } from "../components/table.tsx";
import { usdExact } from "../format.ts";

/** Prices by kind, for one unit, in USD as decimal text. */
export type Pricing = Readonly<Record<string, string>>;

interface Priced {
  readonly pricing: Pricing;
}

export interface Price {
  readonly kind: PriceName;
  readonly label: string;
  /** USD for the quantity in `unit`. */
  readonly amount: number;
  readonly unit: string;
  /** Set if it is one of the model's main prices. */
  readonly column: "input" | "output" | undefined;
}

const TOKENS = "1M tokens";
const MILLION = 1_000_000;

/** Price kinds in display order. */
export const PRICE_KINDS = PRICES.map(([kind]) => kind);
/** Kinds with the price of input, unless the provider has a separate price. */
const LIKE_INPUT: ReadonlySet<PriceName> = new Set(["input_cache_read", "input_cache_write"]);
/** Kinds that are not a model's main price: only some of its requests have them. */
const EXTRAS: ReadonlySet<PriceName> = new Set(["web_search", "file_search", "image_edited"]);
/** Number of significant digits that are exact after float arithmetic. */
const EXACT_DIGITS = 12;

/** Returns every kind with a price, the usual ones first. */
export function pricesOf(pricing: Pricing): Price[] {
  return PRICES.flatMap(([kind, priced]) => {
    const text = pricing[kind];
    if (text === undefined || Number(text) === 0) return [];
    if (LIKE_INPUT.has(kind) && text === pricing.prompt) return [];
    const [count, unit] = quantityOf(kind);
    const amount = Number((Number(text) * count).toPrecision(EXACT_DIGITS));
    return [
      {
        kind,
        label: priced.label,
        column: "column" in priced ? priced.column : undefined,
        amount,
        unit,
      },
    ];
  });
}

/** Returns the quantity whose price is shown, and its name. */
export function quantityOf(kind: PriceName): readonly [count: number, unit: string] {
  const priced = UNITS[kind];
  return "per" in priced ? priced.per : [MILLION, TOKENS];
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
  const prices = pricesOf(pricing);
  return {
    input: prices.find(({ column }) => column === "input"),
    output: prices.find(({ column }) => column === "output"),
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
