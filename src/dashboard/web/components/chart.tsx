import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Series {
  readonly label: string;
  readonly values: readonly (number | null)[];
  /** Number of the colour in the style sheet: --series-1, --series-2 and so on. */
  readonly color: number;
  readonly isBars?: boolean;
}

interface ChartProps {
  readonly label: string;
  /** Start times of the hours or days, in Unix seconds. */
  readonly times: readonly number[];
  readonly series: readonly Series[];
  readonly height?: number;
  format(value: number): string;
  /** Formats the labels of the value axis. Default: `format`. */
  formatTick?(value: number): string;
}

const DEFAULT_HEIGHT = 200;
/** Smallest width of the value axis, in pixels. */
const AXIS_WIDTH = 64;
const DIGIT_WIDTH = 7;
/** Space beside the labels of the value axis, in pixels. */
const AXIS_GAP = 16;
const TICK_SPACE = 34;
const DAY_SECONDS = 86_400;
const BAR_SHARE = 0.7;
const MAX_BAR_WIDTH = 40;
const TIMES_HEIGHT = 40;
/** Top, right, bottom, left, in pixels. */
const PADDING: uPlot.Padding = [8, 16, 0, 0];

/** A chart of figures over time. A table repeats its numbers for screen readers. */
export function Chart({
  label,
  times,
  series,
  height = DEFAULT_HEIGHT,
  format,
  formatTick = format,
}: ChartProps) {
  const room = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const isDaily = stepOf(times) >= DAY_SECONDS;
  const shape = series.map(({ label, color, isBars }) => `${label} ${color} ${isBars}`).join();
  useEffect(() => {
    const element = room.current!;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(
        optionsOf(element, { series, height, isDaily, format, formatTick }),
        dataOf(times, series),
        element,
      );
    };
    draw();
    const resize = new ResizeObserver(() =>
      plot.current?.setSize({ width: element.clientWidth, height }),
    );
    resize.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    document.addEventListener("theme", draw);
    return () => {
      resize.disconnect();
      scheme.removeEventListener("change", draw);
      document.removeEventListener("theme", draw);
      plot.current?.destroy();
    };
  }, [shape, height, isDaily]);
  useEffect(() => plot.current?.setData(dataOf(times, series)), [times, series]);
  return (
    <figure class="chart" aria-label={label}>
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
                <th scope="row">{beginning(time, isDaily ? DAY_IN_UTC : CLOCK_AND_DAY)}</th>
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

function formatOrDash(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? "—" : format(value);
}

function dataOf(times: readonly number[], series: readonly Series[]): uPlot.AlignedData {
  return [times as number[], ...series.map(({ values }) => values as (number | null)[])];
}

/** Returns a colour of the style sheet in a form that canvas accepts. */
function colorOf(element: HTMLElement, variable: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${variable})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

interface DrawOptions {
  readonly series: readonly Series[];
  readonly height: number;
  /**
   * Whether the intervals are days. Days are in UTC, whatever the viewer's time zone is. Hours are in the
   * viewer's time zone.
   */
  readonly isDaily: boolean;
  format(value: number): string;
  formatTick(value: number): string;
}

function optionsOf(
  element: HTMLElement,
  { series, height, isDaily, format, formatTick }: DrawOptions,
): uPlot.Options {
  const quiet = colorOf(element, "--quiet");
  const line = colorOf(element, "--line");
  const { fontFamily } = getComputedStyle(element);
  const axis = { stroke: quiet, font: `12px ${fontFamily}`, ticks: { show: false } };
  return {
    width: element.clientWidth,
    height,
    ...(isDaily && { tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1_000), "Etc/UTC") }),
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    legend: {
      live: true,
      markers: {
        width: 0,
        fill: (_, index) => colorOf(element, `--series-${series[index - 1]!.color}`),
      },
    },
    padding: PADDING,
    scales: {
      x: { range: (plot) => timeRange(plot.data[0], series) },
      y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] },
    },
    axes: [
      {
        ...axis,
        size: TIMES_HEIGHT,
        grid: { show: false },
        values: (_plot, splits) =>
          isDaily ? splits.map((seconds) => beginning(seconds, DAY_IN_UTC)) : beginnings(splits),
      },
      {
        ...axis,
        size: (_plot, labels) => axisWidth(labels),
        space: TICK_SPACE,
        grid: { stroke: line, width: 1 },
        values: (_plot, splits) => withoutRepeats(splits.map(formatTick)),
      },
    ],
    series: [
      {
        label: "",
        value: (_plot, time) =>
          time === null ? "" : beginning(time, isDaily ? DAY_IN_UTC : CLOCK_AND_DAY),
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
          ...(isBars && {
            paths: uPlot.paths.bars!({ size: [BAR_SHARE, MAX_BAR_WIDTH], radius: 0.15 }),
          }),
        };
      }),
    ],
  };
}

/**
 * Returns the time range of the x axis. Bars are centred on their times, so the range needs space for one
 * half of the first and of the last bar.
 */
function timeRange(times: ArrayLike<number>, series: readonly Series[]): [number, number] {
  const first = times[0] ?? 0;
  const last = times[times.length - 1] ?? first;
  const hasBars = series.some(({ isBars }) => isBars);
  const room = hasBars || last === first ? stepOf(times) / 2 : 0;
  return [first - room, last + room];
}

function stepOf(times: ArrayLike<number>): number {
  return times.length > 1 ? times[1]! - times[0]! : DAY_SECONDS;
}

/** Returns the width of the value axis in pixels. Amounts below a cent have long labels. */
function axisWidth(labels: readonly string[] | null): number {
  const characters = Math.max(0, ...(labels ?? []).map((label) => label.length));
  return Math.max(AXIS_WIDTH, characters * DIGIT_WIDTH + AXIS_GAP);
}

/** Replaces repeated labels by empty ones: different amounts can have the same rounded label. */
function withoutRepeats(texts: readonly string[]): string[] {
  return texts.map((text, index) => (text === texts[index - 1] ? "" : text));
}

/** Returns the indexes of values without a neighbour, which a line does not show. */
function isolatedPoints(plot: uPlot, seriesIndex: number): number[] {
  const values = plot.data[seriesIndex]!;
  const hasValue = (index: number) => values[index] !== null && values[index] !== undefined;
  return Array.from(values, (_, index) => index).filter(
    (index) => hasValue(index) && !hasValue(index - 1) && !hasValue(index + 1),
  );
}

const DAY = { day: "numeric", month: "short" } as const;
const DAY_IN_UTC = { ...DAY, timeZone: "UTC" } as const;
const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const;
const CLOCK_AND_DAY = { ...DAY, ...CLOCK } as const;

function beginning(seconds: number, form: Intl.DateTimeFormatOptions): string {
  return new Date(seconds * 1_000).toLocaleString("en-US", form);
}

/** Returns the hour labels of an axis. The first hour of a day has its date below. */
function beginnings(splits: readonly number[]): string[] {
  return splits.map((seconds, index) => {
    const day = beginning(seconds, DAY);
    const isNewDay = index === 0 || beginning(splits[index - 1]!, DAY) !== day;
    return isNewDay ? `${beginning(seconds, CLOCK)}\n${day}` : beginning(seconds, CLOCK);
  });
}
