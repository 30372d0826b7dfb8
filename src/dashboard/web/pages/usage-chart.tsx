import { useMemo } from "preact/hooks";
import { Chart, type Series } from "../components/chart.tsx";
import { usd, usdExact } from "../format.ts";
import { MAX_ROWS, type UsageRow } from "./usage-rows.ts";

const SHOWN_SERIES = 5;
const HOUR_SECONDS = 3_600;
const DAY_MS = 86_400_000;
const MS_PER_SECOND = 1_000;

interface SpendChartProps {
  readonly rows: readonly UsageRow[];
  readonly interval: "day" | "hour";
  readonly from: string;
  readonly to: string;
  name(row: UsageRow): string;
}

/** A chart of spend. Each of the names with the highest spend has a line; the others share one. */
export function SpendChart({ rows, interval, from, to, name }: SpendChartProps) {
  const names = rows.map(name).join();
  const { times, series } = useMemo(() => {
    const step = interval === "hour" ? HOUR_SECONDS : DAY_MS / MS_PER_SECOND;
    const first = Date.parse(from) / MS_PER_SECOND;
    const end = Math.min(Date.parse(to) + DAY_MS, Date.now()) / MS_PER_SECOND;
    const count = Math.max(0, Math.min(MAX_ROWS, Math.ceil((end - first) / step)));
    const startTimes = Array.from({ length: count }, (_, index) => first + index * step);
    return { times: startTimes, series: seriesOf(rows, name, startTimes, step) };
  }, [rows, interval, from, to, names]);
  return (
    <Chart
      label="Spend"
      times={times}
      series={series}
      height={220}
      format={usd}
      formatTick={usdExact}
    />
  );
}

function seriesOf(
  rows: readonly UsageRow[],
  name: (row: UsageRow) => string,
  times: readonly number[],
  step: number,
): Series[] {
  const totals = new Map<string, number>();
  for (const row of rows) totals.set(name(row), (totals.get(name(row)) ?? 0) + row.cost_usd);
  const largest = [...totals].toSorted(([, a], [, b]) => b - a).map(([label]) => label);
  const shown = largest.slice(0, SHOWN_SERIES);
  const labels = largest.length > SHOWN_SERIES ? [...shown, "Others"] : shown;
  const values = labels.map(() => times.map(() => 0));
  for (const row of rows) {
    const timeIndex = Math.floor((Date.parse(row.date) / MS_PER_SECOND - times[0]!) / step);
    const shownIndex = shown.indexOf(name(row));
    const line = values[shownIndex === -1 ? labels.length - 1 : shownIndex];
    if (line?.[timeIndex] !== undefined) line[timeIndex] += row.cost_usd;
  }
  const isAlone = labels.length <= 1;
  if (labels.length === 0)
    return [{ label: "Spend", values: times.map(() => 0), color: 1, isBars: true }];
  return labels.map((label, index) => ({
    label: isAlone && label === "Total" ? "Spend" : label,
    values: values[index]!,
    color: index + 1,
    isBars: isAlone,
  }));
}
