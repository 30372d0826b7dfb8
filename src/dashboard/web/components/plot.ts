import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Interval } from "../range.ts";

/** Smallest width of the value axis, in pixels. */
const AXIS_WIDTH = 64;
const DIGIT_WIDTH = 7;
/** Space beside the labels of the value axis, in pixels. */
const AXIS_GAP = 16;
const TICK_SPACE = 34;
const DAY_SECONDS = 86_400;
/** A step that only months have. */
const MONTH_SECONDS = 28 * DAY_SECONDS;
const BAR_SHARE = 0.7;
const MAX_BAR_WIDTH = 40;
const TIMES_HEIGHT = 40;
/** Distances between the labels of days, in seconds. A shorter one would repeat a day. */
const DAILY_TICKS = [1, 2, 3, 7, 14, 28, 91, 182, 364].map((days) => days * DAY_SECONDS);
/** Top, right, bottom, left, in pixels. At the right, one half of the last label of a line chart fits. */
const PADDING: uPlot.Padding = [8, 24, 0, 0];

interface Plot {
  readonly height: number;
  readonly data: uPlot.AlignedData;
  /** Changes if other options are needed. */
  readonly shape: string;
  options(element: HTMLElement): Omit<uPlot.Options, "width" | "height">;
}

/** Draws a plot in an element, again when its shape, its width or the theme changes. */
export function usePlot(
  room: RefObject<HTMLDivElement | null>,
  { height, data, shape, options }: Plot,
): RefObject<uPlot | null> {
  const plot = useRef<uPlot>(null);
  const latest = useRef({ data, options });
  latest.current = { data, options };
  useEffect(() => {
    const element = room.current!;
    const draw = () => {
      plot.current?.destroy();
      const drawn = { width: element.clientWidth, height, ...latest.current.options(element) };
      plot.current = new uPlot(drawn, latest.current.data, element);
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
      plot.current = null;
    };
  }, [shape, height]);
  useEffect(() => plot.current?.setData(data), [data]);
  return plot;
}

/** Returns a colour of the style sheet in a form that canvas accepts. */
export function colorOf(element: HTMLElement, variable: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${variable})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Returns the options that all charts share: axes, scales and cursor. The values begin at zero. */
export function baseOptions(
  element: HTMLElement,
  interval: Interval,
  hasBars: boolean,
  formatTick: (value: number) => string,
): Omit<uPlot.Options, "width" | "height" | "series"> {
  const quiet = colorOf(element, "--quiet");
  const { fontFamily } = getComputedStyle(element);
  const axis = { stroke: quiet, font: `12px ${fontFamily}`, ticks: { show: false } };
  const isInUtc = interval !== "hour";
  return {
    ...(isInUtc && { tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1_000), "Etc/UTC") }),
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    padding: PADDING,
    scales: {
      x: { range: (plot) => timeRange(plot.data[0], hasBars) },
      y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] },
    },
    axes: [
      {
        ...axis,
        size: TIMES_HEIGHT,
        ...(interval === "day" && { incrs: DAILY_TICKS }),
        grid: { show: false },
        values: (_plot, splits) =>
          isInUtc ? splits.map((seconds) => startLabel(seconds, interval)) : hourLabels(splits),
      },
      {
        ...axis,
        size: (_plot, labels) => axisWidth(labels),
        space: TICK_SPACE,
        grid: { stroke: colorOf(element, "--line"), width: 1 },
        values: (_plot, splits) => withoutRepeats(splits.map(formatTick)),
      },
    ],
  };
}

/** Returns the drawing of bars. Parts of stacked bars have no rounded corners. */
export function barPaths(radius = 0.15): uPlot.Series.PathBuilder {
  return uPlot.paths.bars!({ size: [BAR_SHARE, MAX_BAR_WIDTH], radius });
}

export function intervalOf(times: ArrayLike<number>): Interval {
  const step = stepOf(times);
  return step >= MONTH_SECONDS ? "month" : step >= DAY_SECONDS ? "day" : "hour";
}

/**
 * Returns the time range of the x axis. Bars are centred on their times, so the range needs space for one
 * half of the first and of the last bar.
 */
function timeRange(times: ArrayLike<number>, hasBars: boolean): [number, number] {
  const first = times[0] ?? 0;
  const last = times[times.length - 1] ?? first;
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

const DAY = { day: "numeric", month: "short" } as const;
const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const;
/** Days and months are in UTC, whatever the viewer's time zone is. Hours are in the viewer's time zone. */
const FORMS: Readonly<Record<Interval, Intl.DateTimeFormatOptions>> = {
  hour: { ...DAY, ...CLOCK },
  day: { ...DAY, timeZone: "UTC" },
  month: { month: "short", year: "numeric", timeZone: "UTC" },
};

/** Returns the label of an interval that starts at this time, in Unix seconds. */
export function startLabel(seconds: number, interval: Interval): string {
  return formatted(seconds, FORMS[interval]);
}

function formatted(seconds: number, form: Intl.DateTimeFormatOptions): string {
  return new Date(seconds * 1_000).toLocaleString("en-US", form);
}

/** Returns the hour labels of an axis. The first hour of a day has its date below. */
function hourLabels(splits: readonly number[]): string[] {
  return splits.map((seconds, index) => {
    const day = formatted(seconds, DAY);
    const isNewDay = index === 0 || formatted(splits[index - 1]!, DAY) !== day;
    const clock = formatted(seconds, CLOCK);
    return isNewDay ? `${clock}\n${day}` : clock;
  });
}

/** Formats a value, or a dash if there is none. */
export function formatOrDash(
  value: number | null | undefined,
  format: (value: number) => string,
): string {
  return value === null || value === undefined ? "—" : format(value);
}
