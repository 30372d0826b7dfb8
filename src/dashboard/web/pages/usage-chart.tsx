import { useMemo } from "preact/hooks";
import { StackedChart } from "../components/stacked-chart.tsx";
import { capitalized } from "../format.ts";
import { type Interval, intervalQuery, intervalTimes, type Range, rangeQuery } from "../range.ts";
import { stackOf } from "../stack.ts";
import { type Group, idOf, type Metric, requestsOf, type UsageRow } from "./usage-rows.ts";

const MS_PER_SECOND = 1_000;

interface UsageChartProps {
  readonly label: string;
  readonly metric: Metric;
  readonly range: Range;
  readonly interval: Interval;
  readonly group: Group;
  /** Rows by interval and name, with the largest names and the rest. */
  readonly rows: readonly UsageRow[];
  /** Rows of the period before by interval. */
  readonly before?: readonly UsageRow[] | undefined;
  readonly height?: number;
  /** Further filters of the requests to which the bars lead. */
  readonly filters?: Readonly<Record<string, string>>;
  labelOf(id: string | null): string;
}

/** Usage as stacked bars. The bars lead to their requests. */
export function UsageChart(props: UsageChartProps) {
  const { label, metric, range, interval, group, rows, before, height, filters, labelOf } = props;
  const { fromMs, beforeMs } = range;
  const names = rows.map((row) => labelOf(idOf(row, group) ?? null)).join();
  const { times, parts } = useMemo(() => {
    const startTimes = intervalTimes({ fromMs, beforeMs }, interval);
    const amounts = rows.map((row) => {
      const id = idOf(row, group);
      const value = metric.valueOf(row);
      return { time: timeOf(row), id: id ?? null, value, isRest: id === undefined };
    });
    const stacked = stackOf(amounts, startTimes, labelOf);
    const only = stacked.length === 1 && group === "" ? stacked[0] : undefined;
    return { times: startTimes, parts: only ? [{ ...only, label: metric.title }] : stacked };
  }, [rows, fromMs, beforeMs, interval, group, metric, names]);
  const earlier = useMemo(() => {
    if (before === undefined) return undefined;
    const values = new Map(before.map((row) => [timeOf(row), metric.valueOf(row)]));
    const startTimes = intervalTimes(range.before, interval);
    const shown = times.map((_, index) =>
      index < startTimes.length ? (values.get(startTimes[index]!) ?? 0) : null,
    );
    return { label: capitalized(range.before.label), values: shown };
  }, [before, range.before.label, interval, metric, times]);
  return (
    <StackedChart
      label={label}
      unit={metric.unit}
      times={times}
      parts={parts}
      before={earlier}
      height={height}
      format={metric.format}
      formatTick={metric.formatTick}
      linkTo={(time, part) => {
        const ofPart = part && (part.id === undefined ? undefined : requestsOf(group, part.id));
        if (part !== undefined && ofPart === undefined) return undefined;
        const ofTime =
          time === undefined ? rangeQuery(range) : intervalQuery(range, interval, time);
        return { page: "requests", query: { ...ofTime, ...filters, ...ofPart } };
      }}
    />
  );
}

function timeOf({ date }: UsageRow): number {
  return Date.parse(date) / MS_PER_SECOND;
}
