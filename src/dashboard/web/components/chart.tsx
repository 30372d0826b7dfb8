import { useRef } from "preact/hooks";
import type uPlot from "uplot";
import {
  barPaths,
  baseOptions,
  colorOf,
  formatOrDash,
  intervalOf,
  startLabel,
  usePlot,
} from "./plot.ts";

export interface Series {
  readonly label: string;
  readonly values: readonly (number | null)[];
  /** Number of the colour in the style sheet: --series-1, --series-2 and so on. */
  readonly color: number;
  readonly isBars?: boolean;
}

interface ChartProps {
  readonly label: string;
  /** Unit of the values, such as "requests". Shown above the axis. Omitted if `format` shows it. */
  readonly unit?: string;
  /** Start times of the hours or days, in Unix seconds. With `formatX`, other numbers, such as steps. */
  readonly times: readonly number[];
  readonly series: readonly Series[];
  readonly height?: number;
  /** Formats numbers of the x axis that are no times. */
  formatX?(value: number): string;
  format(value: number): string;
  /** Formats the labels of the value axis. Default: `format`. */
  formatTick?(value: number): string;
}

const DEFAULT_HEIGHT = 200;

/** A chart of figures over time. A table repeats its numbers for screen readers. */
export function Chart(props: ChartProps) {
  const { label, unit, times, series, height = DEFAULT_HEIGHT, format } = props;
  const room = useRef<HTMLDivElement>(null);
  const interval = intervalOf(times);
  const { formatX = (seconds: number) => startLabel(seconds, interval) } = props;
  const shape = series.map(({ label, color, isBars }) => `${label} ${color} ${isBars}`).join();
  usePlot(room, {
    height,
    data: [times as number[], ...series.map(({ values }) => values as (number | null)[])],
    shape: `${shape} ${interval}`,
    options: (element) => optionsOf(element, props),
  });
  return (
    <figure class="chart" aria-label={label}>
      {unit !== undefined && <span class="unit">{unit}</span>}
      <div ref={room} aria-hidden="true" />
      {/* The wrapper hides the table: a table's own height cannot be reduced by styles. */}
      <div class="unseen">
        <table>
          <caption>{label}</caption>
          <thead>
            <tr>
              <th scope="col">Start</th>
              {series.map((item) => (
                <th key={item.label} scope="col">
                  {item.label}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {times.map((time, index) => (
              <tr key={time}>
                <th scope="row">{formatX(time)}</th>
                {series.map((item) => (
                  <td key={item.label}>{formatOrDash(item.values[index], format)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </figure>
  );
}

function optionsOf(
  element: HTMLElement,
  { times, series, format, formatTick = format, formatX }: ChartProps,
): Omit<uPlot.Options, "width" | "height"> {
  const interval = intervalOf(times);
  const hasBars = series.some(({ isBars }) => isBars);
  const base = baseOptions(element, interval, hasBars, formatTick);
  const [timeAxis, valueAxis] = base.axes!;
  return {
    ...base,
    ...(formatX && {
      scales: { ...base.scales, x: { time: false } },
      padding: [8, 32, 0, 0],
      axes: [{ ...timeAxis!, values: (_plot, splits) => splits.map(formatX) }, valueAxis!],
    }),
    legend: {
      live: true,
      markers: {
        width: 0,
        fill: (_, index) => colorOf(element, `--series-${series[index - 1]!.color}`),
      },
    },
    series: [
      {
        label: "",
        value: (_plot, time) =>
          time === null ? "" : (formatX?.(time) ?? startLabel(time, interval)),
      },
      ...series.map(({ label, color, isBars }) => {
        const stroke = colorOf(element, `--series-${color}`);
        return {
          label,
          stroke,
          width: isBars ? 0 : 2,
          fill: isBars ? stroke : undefined,
          points: isBars ? { show: false } : { show: true, filter: isolatedPoints },
          // Without a pointer on the chart the legend shows names only.
          value: (plot: uPlot, value: number | null) =>
            plot.cursor.idx == null ? "" : formatOrDash(value, format),
          ...(isBars && { paths: barPaths() }),
        };
      }),
    ],
  };
}

/** Returns the indexes of values without a neighbour, which a line does not show. */
function isolatedPoints(plot: uPlot, seriesIndex: number): number[] {
  const values = plot.data[seriesIndex]!;
  const hasValue = (index: number) => values[index] !== null && values[index] !== undefined;
  return Array.from(values, (_, index) => index).filter(
    (index) => hasValue(index) && !hasValue(index - 1) && !hasValue(index + 1),
  );
}
