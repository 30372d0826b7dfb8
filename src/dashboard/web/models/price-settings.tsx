import { PRICES, type PriceName, UNITS } from "../../../lib/units.ts";
import { ApiError } from "../api.ts";
import { Field } from "../components/controls.tsx";
import { usdExact } from "../format.ts";
import { quantityOf } from "./prices.tsx";

/** Prices as members of an entry of the configuration, in USD for one unit. */
export type PriceMembers = Readonly<Record<string, unknown>>;
/** Prices as texts of a form, in USD for the quantity that the field names. Empty: not set. */
export type PriceTexts = Readonly<Record<string, string>>;

/** Members of an entry with one price, and the prices that they set, in the order of the form. */
const SETTINGS: readonly (readonly [name: string, price: PriceName])[] = [
  ["input_cost_per_token", "prompt"],
  ["output_cost_per_token", "completion"],
  ["cached_input_cost_per_token", "input_cache_read"],
  ["cache_write_input_cost_per_token", "input_cache_write"],
  ["cost_per_image", "image"],
  ["cost_per_pixel", "image_pixel"],
  ["cost_per_input_image", "image_edited"],
  ["image_input_cost_per_token", "input_image"],
  ["image_output_cost_per_token", "output_image"],
  ...PRICES.flatMap(([price, unit]) =>
    "setting" in unit ? [[unit.setting.name, price] as const] : [],
  ),
];

/** Settings that are always shown. The others are folded. */
const MAIN_SETTINGS = 2;
/** The API accepts prices with at most this number of decimals. */
const MAX_DECIMALS = 15;
/** Number of significant digits that are exact after float arithmetic. */
const EXACT_DIGITS = 12;

interface PriceFieldsProps {
  readonly texts: PriceTexts;
  onChange(texts: PriceTexts): void;
}

/** Fields for the prices of a model. The rare prices are folded until one is set. */
export function PriceFields({ texts, onChange }: PriceFieldsProps) {
  const fields = SETTINGS.map(([name, price]) => (
    <Field
      key={name}
      label={UNITS[price].label}
      value={texts[name] ?? ""}
      onInput={(text) => onChange({ ...texts, [name]: text })}
      inputMode="decimal"
      hint={`USD per ${quantityOf(price)[1]}`}
    />
  ));
  const rare = SETTINGS.slice(MAIN_SETTINGS);
  return (
    <fieldset class="rows">
      <legend>Prices</legend>
      <div class="pair">{fields.slice(0, MAIN_SETTINGS)}</div>
      <details class="fold" open={rare.some(([name]) => texts[name])}>
        <summary>Other prices</summary>
        <div class="pair">{fields.slice(MAIN_SETTINGS)}</div>
      </details>
    </fieldset>
  );
}

/** Returns the prices of an entry as texts of the form. */
export function textsOf(members: PriceMembers): PriceTexts {
  return Object.fromEntries(
    amountsOf(members).map(({ name, amount }) => [name, plainText(amount)]),
  );
}

/** Returns the prices of a form as members of an entry. Throws if a text is not a price. */
export function membersOf(texts: PriceTexts): PriceMembers {
  return Object.fromEntries(
    SETTINGS.flatMap(([name, price]) => {
      const text = (texts[name] ?? "").trim().replace(/^\$/, "");
      if (text === "") return [];
      const amount = Number(text);
      if (!Number.isFinite(amount) || amount < 0) {
        const message = `The price "${UNITS[price].label}" must be a number of USD.`;
        throw new ApiError(400, "invalid_body", message, name);
      }
      return [[name, Number((amount / quantityOf(price)[0]).toFixed(MAX_DECIMALS))]];
    }),
  );
}

/** Returns the prices of an entry in words, such as "Input $0.80 / 1M tokens". */
export function priceLines(members: PriceMembers): string[] {
  const lines = amountsOf(members).map(
    ({ price, amount }) => `${UNITS[price].label} ${usdExact(amount)} / ${quantityOf(price)[1]}`,
  );
  return members.image_prices === undefined ? lines : [...lines, "Images by size and quality"];
}

function amountsOf(members: PriceMembers) {
  return SETTINGS.flatMap(([name, price]) => {
    const value = members[name];
    if (typeof value !== "number") return [];
    const amount = Number((value * quantityOf(price)[0]).toPrecision(EXACT_DIGITS));
    return [{ name, price, amount }];
  });
}

/** Returns a number without an exponent, because people read and change it. */
function plainText(amount: number): string {
  return amount.toLocaleString("en-US", {
    useGrouping: false,
    maximumFractionDigits: MAX_DECIMALS,
  });
}
