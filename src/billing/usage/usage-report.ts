import { type TProperties, Type } from "typebox";
import { UNITS_WITHOUT_COLUMN, type UsageRow } from "../../../db/queries/usage.ts";
import { type CsvRow, csvResponse } from "../../http/csv.ts";
import { UNITS } from "../../lib/units.ts";

/* The figures of a row of usage, as JSON and as CSV. */

const MS_PER_SECOND = 1_000;

const furtherUnits: TProperties = {};
for (const unit of UNITS_WITHOUT_COLUMN) {
  const { description } = unit;
  if ("seconds" in unit) furtherUnits[unit.seconds] = Type.Number({ description });
  else furtherUnits[unit.stored] = Type.Integer({ description });
}

/** The members of a row of usage that are counts, in their order. */
export const figureFields: TProperties = {
  requests: Type.Integer({ description: "Charged and failed requests." }),
  errors: Type.Integer({
    description: "Requests among these that ended with a status of 400 or higher.",
  }),
  prompt_tokens: Type.Integer(),
  completion_tokens: Type.Integer(),
  cached_tokens: Type.Integer(),
  reasoning_tokens: Type.Integer(),
  images: Type.Integer(),
  characters: Type.Integer(),
  seconds: Type.Number(),
  search_units: Type.Integer({ description: UNITS.search_unit.description }),
  ...furtherUnits,
};

export const isComplete = Type.Boolean({
  description:
    "False while requests made before an upgrade or during a burst are still being added.",
});

type Figures = Omit<UsageRow, "startMs" | "names" | "isRest">;

type Figure = readonly [name: string, of: (row: Figures) => number];

const FIGURES: readonly Figure[] = [
  ["requests", (row) => row.requests],
  ["errors", (row) => row.errors],
  ["prompt_tokens", (row) => row.promptTokens],
  ["completion_tokens", (row) => row.completionTokens],
  ["cached_tokens", (row) => row.cachedTokens],
  ["reasoning_tokens", (row) => row.reasoningTokens],
  ["images", (row) => row.images],
  ["characters", (row) => row.characters],
  ["seconds", (row) => row.durationMs / MS_PER_SECOND],
  ["search_units", (row) => row.searchUnits],
  ...UNITS_WITHOUT_COLUMN.map(
    (unit): Figure =>
      "seconds" in unit
        ? [unit.seconds, ({ quantities }) => quantities[unit.stored]! / MS_PER_SECOND]
        : [unit.stored, ({ quantities }) => quantities[unit.stored]!],
  ),
];

/** Returns the counts of a row by their names in answers. */
export function figuresShape(row: Figures): Record<string, number> {
  return Object.fromEntries(FIGURES.map(([figure, of]) => [figure, of(row)]));
}

/** The amounts of a row, as names in answers and in nano-USD. */
export type Amounts = Readonly<Record<string, bigint>>;

interface CsvLine {
  readonly names: readonly (string | null)[];
  readonly figures: Figures;
  readonly amounts: Amounts;
}

interface CsvReport {
  /** Titles of the names of a line. */
  readonly columns: readonly string[];
  /** Titles of the amounts of a line. */
  readonly amounts: readonly string[];
  readonly lines: readonly CsvLine[];
  readonly hasMore: boolean;
  readonly isUpToDate: boolean;
}

/**
 * Returns the report as CSV with a header line. Response headers report whether there are more rows, and whether the
 * totals are complete.
 */
export function usageCsv({ columns, amounts, lines, hasMore, isUpToDate }: CsvReport): Response {
  const header = [...columns, ...FIGURES.map(([figure]) => figure), ...amounts];
  const rows = lines.map(({ names, figures, amounts: ofLine }): CsvRow => {
    const counts = FIGURES.map(([, of]) => of(figures));
    return [...names, ...counts, ...amounts.map((amount) => ({ nanoUsd: ofLine[amount]! }))];
  });
  return csvResponse("usage.csv", [header, ...rows], {
    "x-gateway-has-more": String(hasMore),
    "x-gateway-is-complete": String(isUpToDate),
  });
}
