import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Series {
  readonly label: string;
  readonly values: readonly (number | null)[];
  /** Number of the colour in the style sheet: --series-1, … */
  readonly color: number;
  readonly isBars?: boolean;
}

interface ChartProps {
  readonly label: string;
  /** Beginnings of the hours or days, in seconds since the epoch. */
  readonly times: readonly number[];
  readonly series: readonly Series[];
  readonly height?: number;
  format(value: number): string;
}

const DEFAULT_HEIGHT = 200;
const AXIS_WIDTH = 64;
const TICK_SPACE = 34;
const DAY_SECONDS = 86_400;
const BAR_SHARE = 0.7;
const MAX_BAR_WIDTH = 40;
const TIMES_HEIGHT = 40;
/** Above, right, below, left. */
const PADDING: uPlot.Padding = [8, 16, 0, 0];

/** A chart of figures by time. Its numbers are in a table too, for who does not see it. */
export function Chart({ label, times, series, height = DEFAULT_HEIGHT, format }: ChartProps) {
  const room = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const isDaily = stepOf(times) >= DAY_SECONDS;
  const shape = series.map((one) => `${one.label} ${one.color} ${one.isBars}`).join();
  useEffect(() => {
    const place = room.current!;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(
        optionsOf(place, { series, height, isDaily, format }),
        dataOf(times, series),
        place,
      );
    };
    draw();
    const resize = new ResizeObserver(() =>
      plot.current?.setSize({ width: place.clientWidth, height }),
    );
    resize.observe(place);
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
      {/* A table keeps its height, whatever its style says. */}
      <div class="unseen">
        <table>
          <caption>{label}</caption>
          <thead>
            <tr>
              <th scope="col">From</th>
              {series.map((one) => (
                <th key={one.label} scope="col">
                  {one.label}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {times.map((time, at) => (
              <tr key={time}>
                <th scope="row">{beginning(time, isDaily ? DAY_IN_UTC : CLOCK_AND_DAY)}</th>
                {series.map((one) => (
                  <td key={one.label}>{shown(one.values[at], format)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </figure>
  );
}

function shown(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? "—" : format(value);
}

function dataOf(times: readonly number[], series: readonly Series[]): uPlot.AlignedData {
  return [times as number[], ...series.map(({ values }) => values as (number | null)[])];
}

/** A colour of the style sheet as a canvas takes it. */
function colorOf(place: HTMLElement, variable: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${variable})`;
  place.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

interface Drawn {
  readonly series: readonly Series[];
  readonly height: number;
  /** Days are those of UTC, whatever the viewer's zone is; hours are shown in that. */
  readonly isDaily: boolean;
  format(value: number): string;
}

function optionsOf(place: HTMLElement, { series, height, isDaily, format }: Drawn): uPlot.Options {
  const quiet = colorOf(place, "--quiet");
  const line = colorOf(place, "--line");
  const { fontFamily } = getComputedStyle(place);
  const axis = { stroke: quiet, font: `12px ${fontFamily}`, ticks: { show: false } };
  return {
    width: place.clientWidth,
    height,
    ...(isDaily && { tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1_000), "Etc/UTC") }),
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    legend: {
      live: true,
      markers: { width: 0, fill: (_, at) => colorOf(place, `--series-${series[at - 1]!.color}`) },
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
          isDaily ? splits.map((at) => beginning(at, DAY_IN_UTC)) : beginnings(splits),
      },
      {
        ...axis,
        size: AXIS_WIDTH,
        space: TICK_SPACE,
        grid: { stroke: line, width: 1 },
        values: (_plot, splits) => withoutRepeats(splits.map(format)),
      },
    ],
    series: [
      {
        label: "",
        value: (_plot, time) =>
          time === null ? "" : beginning(time, isDaily ? DAY_IN_UTC : CLOCK_AND_DAY),
      },
      ...series.map(({ label, color, isBars }) => {
        const stroke = colorOf(place, `--series-${color}`);
        return {
          label,
          stroke,
          width: isBars ? 0 : 2,
          fill: isBars ? stroke : undefined,
          points: isBars ? { show: false } : { show: true, filter: pointsAlone },
          // Without a pointer on the chart the legend has names alone.
          value: (plot: uPlot, value: number | null) =>
            plot.cursor.idx == null ? "" : shown(value, format),
          ...(isBars && {
            paths: uPlot.paths.bars!({ size: [BAR_SHARE, MAX_BAR_WIDTH], radius: 0.15 }),
          }),
        };
      }),
    ],
  };
}

/** Bars stand above their times, so half of the first and of the last one needs room. */
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

/** Amounts that are rounded for the axis can be the same. */
function withoutRepeats(texts: readonly string[]): string[] {
  return texts.map((text, at) => (text === texts[at - 1] ? "" : text));
}

/** Values without a neighbour, which no line shows. */
function pointsAlone(plot: uPlot, at: number): number[] {
  const values = plot.data[at]!;
  const isThere = (index: number) => values[index] !== null && values[index] !== undefined;
  return Array.from(values, (_, index) => index).filter(
    (index) => isThere(index) && !isThere(index - 1) && !isThere(index + 1),
  );
}

const DAY = { day: "numeric", month: "short" } as const;
const DAY_IN_UTC = { ...DAY, timeZone: "UTC" } as const;
const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const;
const CLOCK_AND_DAY = { ...DAY, ...CLOCK } as const;

function beginning(seconds: number, form: Intl.DateTimeFormatOptions): string {
  return new Date(seconds * 1_000).toLocaleString("en-US", form);
}

/** Hours of an axis; a new day has its date below. */
function beginnings(splits: readonly number[]): string[] {
  return splits.map((at, place) => {
    const day = beginning(at, DAY);
    const isNew = place === 0 || beginning(splits[place - 1]!, DAY) !== day;
    return isNew ? `${beginning(at, CLOCK)}\n${day}` : beginning(at, CLOCK);
  });
}
