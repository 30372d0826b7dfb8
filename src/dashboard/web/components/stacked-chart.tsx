import { useMemo, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import { hrefOf, navigate } from "../router.ts";
import { type Part, partAt, topsOf, totalsOf } from "../stack.ts";
import { Link } from "./controls.tsx";
import {
  barPaths,
  baseOptions,
  colorOf,
  formatOrDash,
  intervalOf,
  startLabel,
  usePlot,
} from "./plot.ts";

/** A page with its query. */
export interface Destination {
  readonly page: string;
  readonly query: Readonly<Record<string, string | undefined>>;
}

interface StackedChartProps {
  readonly label: string;
  /** Unit of the values, such as "USD". Shown above the axis. */
  readonly unit: string;
  /** Start times of the intervals, in Unix seconds. */
  readonly times: readonly number[];
  /** At most `MAX_PARTS` and the rest, as `stackOf` returns them. */
  readonly parts: readonly Part[];
  /** Totals of the period before, drawn as a line. */
  readonly before?:
    | { readonly label: string; readonly values: readonly (number | null)[] }
    | undefined;
  readonly height?: number | undefined;
  format(value: number): string;
  /** Formats the labels of the value axis. Default: `format`. */
  formatTick?(value: number): string;
  /**
   * Returns the page that lists the requests of a bar, of a part of it, or of a part of all bars. Undefined if there
   * is no such page.
   */
  linkTo?(time: number | undefined, part: Part | undefined): Destination | undefined;
}

const DEFAULT_HEIGHT = 240;
/** Width from which on the tooltip is shown before the pointer, as a share of the chart. */
const TURN_SHARE = 0.55;

/** The pointer on a bar. */
interface Pointed {
  readonly index: number;
  readonly part: Part | undefined;
  /** Position in the chart, in pixels. */
  readonly left: number;
  readonly isTurned: boolean;
}

/**
 * Stacked bars with a legend, a tooltip and a table of the numbers. A click on a bar, or a link of the table or the
 * legend, opens the list of its requests.
 */
export function StackedChart(props: StackedChartProps) {
  const { label, unit, times, parts, before, height = DEFAULT_HEIGHT, linkTo } = props;
  const room = useRef<HTMLDivElement>(null);
  const [pointed, setPointed] = useState<Pointed>();
  const interval = intervalOf(times);
  const latest = useRef(props);
  latest.current = props;
  const data = useMemo(
    () => [times, ...topsOf(parts, times.length), ...(before ? [before.values] : [])],
    [times, parts, before?.values],
  ) as uPlot.AlignedData;
  const isTouch = useRef(false);
  const touched = useRef(-1);
  const plot = usePlot(room, {
    height,
    data,
    shape: `${parts.map(({ color }) => color)} ${before === undefined} ${interval}`,
    options: (element) => ({
      ...optionsOf(element, latest.current),
      hooks: { setCursor: [(moved) => setPointed(pointedIn(moved, latest.current.parts))] },
    }),
  });
  const open = () => {
    if (pointed === undefined) return;
    // The first touch of a bar shows its numbers, the second one opens it.
    const isFirst = isTouch.current && touched.current !== pointed.index;
    touched.current = pointed.index;
    if (isFirst) return;
    const time = times[pointed.index];
    const destination = linkTo?.(time, pointed.part) ?? linkTo?.(time, undefined);
    if (destination !== undefined) navigate(hrefOf(destination.page, destination.query));
  };
  return (
    <figure
      class={linkTo ? "chart stacked-chart linked" : "chart stacked-chart"}
      aria-label={label}
    >
      <span class="unit">{unit}</span>
      {/* Keyboards and screen readers use the table. */}
      <div
        ref={room}
        aria-hidden="true"
        onPointerDown={(event) => {
          isTouch.current = event.pointerType === "touch";
        }}
        onClick={(event) => plot.current?.over.contains(event.target as Node) && open()}
      />
      {pointed !== undefined && <Tooltip {...props} pointed={pointed} />}
      <Legend {...props} />
      <Numbers {...props} />
    </figure>
  );
}

function pointedIn(plot: uPlot, parts: readonly Part[]): Pointed | undefined {
  const { idx: index, left = -1, top = -1 } = plot.cursor;
  if (index == null || left < 0) return undefined;
  const part = partAt(parts, index, plot.posToVal(top, "y"));
  const isTurned = left > plot.over.clientWidth * TURN_SHARE;
  const bar = plot.valToPos(plot.data[0][index]!, "x") + plot.over.offsetLeft;
  return { index, part, left: Math.round(bar), isTurned };
}

function optionsOf(
  element: HTMLElement,
  { times, parts, before, format, formatTick = format }: StackedChartProps,
): Omit<uPlot.Options, "width" | "height"> {
  const base = baseOptions(element, intervalOf(times), true, formatTick);
  const gap = colorOf(element, "--raised");
  const line = {
    ...{ stroke: colorOf(element, "--text"), width: 1.5, dash: [4, 4], points: { show: false } },
  };
  const bars = parts.map(({ color }) => ({
    ...{ stroke: gap, width: 1, fill: colorOf(element, variableOf(color)), paths: barPaths(0) },
    points: { show: false },
  }));
  return {
    ...base,
    cursor: { ...base.cursor, points: { show: false } },
    legend: { show: false },
    series: [{}, ...bars.toReversed(), ...(before ? [line] : [])],
  };
}

function variableOf(color: number | undefined): string {
  return color === undefined ? "--series-rest" : `--series-${color}`;
}

function Swatch({ color }: Pick<Part, "color">) {
  return <span class={`swatch series-${color ?? "rest"}`} aria-hidden="true" />;
}

function Tooltip({
  times,
  parts,
  before,
  format,
  pointed,
}: StackedChartProps & { pointed: Pointed }) {
  const { index, left, isTurned } = pointed;
  const shown = parts.filter(({ values }) => values[index] !== 0);
  const [total] = totalsOf(
    parts.map((part) => ({ ...part, values: [part.values[index]!] })),
    1,
  );
  return (
    <div
      class={isTurned ? "tooltip turned" : "tooltip"}
      aria-hidden="true"
      ref={(element) => element?.style.setProperty("left", `${left}px`)}
    >
      <b>{startLabel(times[index]!, intervalOf(times))}</b>
      <dl>
        {shown.toReversed().map((part) => (
          <div key={part.label} class={part === pointed.part ? "pointed" : undefined}>
            <dt>
              <Swatch color={part.color} />
              <span>{part.label}</span>
            </dt>
            <dd>{format(part.values[index]!)}</dd>
          </div>
        ))}
        <div class="total">
          <dt>Total</dt>
          <dd>{format(total!)}</dd>
        </div>
        {typeof before?.values[index] === "number" && (
          <div class="quiet">
            <dt>{before.label}</dt>
            <dd>{format(before.values[index])}</dd>
          </div>
        )}
      </dl>
    </div>
  );
}

/** The parts with their totals, and the name of the dashed line. */
function Legend({ parts, before, format, linkTo }: StackedChartProps) {
  return (
    <ul class="legend">
      {parts.map((part) => {
        const destination = linkTo?.(undefined, part);
        return (
          <li key={part.label}>
            <Swatch color={part.color} />
            {destination ? <Link {...destination}>{part.label}</Link> : <span>{part.label}</span>}
            <b>{format(part.total)}</b>
          </li>
        );
      })}
      {before && (
        <li>
          <span class="swatch dashed" aria-hidden="true" />
          <span>{before.label}</span>
        </li>
      )}
    </ul>
  );
}

/** The numbers of the chart as a table. Its rows lead to what the bars lead to. */
function Numbers({ label, unit, times, parts, before, format, linkTo }: StackedChartProps) {
  const [isOpen, setOpen] = useState(false);
  const interval = intervalOf(times);
  const totals = totalsOf(parts, times.length);
  return (
    <details class="numbers" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Numbers</summary>
      {isOpen && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: the table scrolls, so it has to be focusable
        <section class="table-room" aria-label={`${label}: numbers`} tabIndex={0}>
          <table>
            <caption class="unseen">{`${label} in ${unit}`}</caption>
            <thead>
              <tr>
                <th scope="col">{interval === "hour" ? "Start" : "Start (UTC)"}</th>
                {parts.map((part) => (
                  <th key={part.label} scope="col">
                    {part.label}
                  </th>
                ))}
                <th scope="col">Total</th>
                {before && <th scope="col">{before.label}</th>}
              </tr>
            </thead>
            <tbody>
              {times.map((time, index) => {
                const destination = linkTo?.(time, undefined);
                const start = startLabel(time, interval);
                return (
                  <tr key={time}>
                    <th scope="row">
                      {destination ? <Link {...destination}>{start}</Link> : start}
                    </th>
                    {parts.map((part) => (
                      <td key={part.label}>{format(part.values[index]!)}</td>
                    ))}
                    <td>{format(totals[index]!)}</td>
                    {before && <td>{formatOrDash(before.values[index], format)}</td>}
                  </tr>
                );
              })}
            </tbody>
          </table>
        </section>
      )}
    </details>
  );
}
