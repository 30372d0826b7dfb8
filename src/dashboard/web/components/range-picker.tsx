import { useState } from "preact/hooks";
import {
  daysOf,
  latestMonths,
  parseRange,
  type Range,
  type RangeId,
  rangeFrom,
  rangeQuery,
} from "../range.ts";
import { changeQuery, query } from "../router.ts";
import { Check, Choice, Field } from "./controls.tsx";
import { Segments } from "./segments.tsx";

const LISTED_MONTHS = 24;
const RANGES = [
  ["24h", "24 h"],
  ["7d", "7 d"],
  ["30d", "30 d"],
  ["month", "Month"],
  ["custom", "Custom"],
] as const;

/** Returns the range that the query of the page states, or else the usual range of the page. */
export function useRange(usual: RangeId = "30d"): Range {
  const nowMs = Date.now();
  return parseRange(query.value, nowMs) ?? rangeFrom(usual, nowMs);
}

/** Returns true if the page compares its figures to the period before. */
export function useComparison(): boolean {
  return query.value.get("compare") !== "off";
}

interface RangePickerProps {
  /** Undefined: any time. */
  readonly range: Range | undefined;
  /** Whether any time can be chosen. */
  readonly isOptional?: boolean;
  /** Whether the comparison to the period before can be chosen. */
  readonly hasComparison?: boolean;
  /** Further parameters of the query to change with the range, such as the page of a list. */
  readonly change?: Readonly<Record<string, string | undefined>>;
}

/** The choice of the range of a page. Keeps it in the query of the page. */
export function RangePicker({ range, isOptional, hasComparison, change }: RangePickerProps) {
  const choose = (changed: Readonly<Record<string, string | undefined>>) =>
    changeQuery({ range: undefined, from: undefined, to: undefined, ...change, ...changed });
  const choosePeriod = (id: Range["id"] | "") => {
    if (id !== "custom") return choose({ range: id });
    choose(daysOf(range ?? rangeFrom("7d", Date.now())));
  };
  return (
    <div class="range">
      <Segments
        label="Period"
        options={isOptional ? [["", "Any time"] as const, ...RANGES] : RANGES}
        value={range?.id ?? ""}
        onChange={choosePeriod}
      />
      {range?.id === "month" && <Months range={range} onChoose={(id) => choose({ range: id })} />}
      {range?.id === "custom" && <Days range={range} onChoose={choose} />}
      {hasComparison && range !== undefined && (
        <Check
          label={`Compare to ${range.before.label}`}
          isChecked={useComparison()}
          onChange={(isChecked) => changeQuery({ compare: isChecked ? undefined : "off" })}
        />
      )}
    </div>
  );
}

interface MonthsProps {
  readonly range: Range;
  onChoose(month: string): void;
}

function Months({ range, onChoose }: MonthsProps) {
  const months = latestMonths(LISTED_MONTHS, Date.now());
  const month = rangeQuery(range).range!;
  const isListed = months.some(([id]) => id === month);
  return (
    <Choice
      label="Month"
      isInline
      value={month}
      options={isListed ? months : [...months, [month, range.label]]}
      onChange={onChoose}
    />
  );
}

interface DaysProps {
  readonly range: Range;
  onChoose(days: { from: string; to: string }): void;
}

/** The first and the last day. A day after the other one moves that one, too. */
function Days({ range, onChoose }: DaysProps) {
  const { from, to } = daysOf(range);
  const [invalid, setInvalid] = useState<"from" | "to">();
  const choose = (field: "from" | "to", days: { from: string; to: string }) => {
    const isValid = parseRange(new URLSearchParams(days), Date.now()) !== undefined;
    setInvalid(isValid ? undefined : field);
    if (isValid) onChoose(days);
  };
  const error = (field: "from" | "to") =>
    field === invalid ? "At most 400 days, up to today" : undefined;
  return (
    <div class="days">
      <Field
        label="From"
        type="date"
        value={from}
        error={error("from")}
        onInput={(day) => choose("from", { from: day, to: day > to ? day : to })}
      />
      <Field
        label="To"
        type="date"
        value={to}
        error={error("to")}
        onInput={(day) => choose("to", { from: day < from ? day : from, to: day })}
      />
    </div>
  );
}
