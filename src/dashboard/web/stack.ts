/** One part of stacked bars, such as a model. */
export interface Part {
  /** Identifies the part. Undefined for the rest. Null for what belongs to no name, such as no team. */
  readonly id: string | null | undefined;
  readonly label: string;
  /** One value for each interval. */
  readonly values: readonly number[];
  readonly total: number;
  /** Number of the colour in the style sheet: --series-1, --series-2 and so on. Undefined: the colour of the rest. */
  readonly color: number | undefined;
}

/** A value of one part in one interval. */
export interface Amount {
  /** Start of the interval in Unix seconds. */
  readonly time: number;
  readonly id: string | null;
  readonly value: number;
  /** True for a sum of others that the API has made. */
  readonly isRest?: boolean;
}

/** Parts with colours of their own. */
export const MAX_PARTS = 6;
const REST = "Others";

/**
 * Returns the parts with the largest totals, largest first, and the rest as one part. A time that is not listed, and
 * amounts that are not finite, are left out.
 */
export function stackOf(
  amounts: readonly Amount[],
  times: readonly number[],
  labelOf: (id: string | null) => string,
): Part[] {
  const indexes = new Map(times.map((time, index) => [time, index]));
  const zeros = () => times.map(() => 0);
  const values = new Map<string | null, number[]>();
  const rest = zeros();
  for (const { time, id, value, isRest } of amounts) {
    const index = indexes.get(time);
    if (index === undefined || !Number.isFinite(value)) continue;
    if (isRest) rest[index]! += value;
    else {
      const ofId = values.get(id) ?? zeros();
      ofId[index]! += value;
      values.set(id, ofId);
    }
  }
  const sorted = [...values]
    .map(([id, ofId]) => ({ id, label: labelOf(id), values: ofId, total: sum(ofId) }))
    .filter(({ values: ofId }) => ofId.some((value) => value !== 0))
    .toSorted((a, b) => b.total - a.total || a.label.localeCompare(b.label));
  for (const { values: ofId } of sorted.slice(MAX_PARTS)) {
    for (const [index, value] of ofId.entries()) rest[index]! += value;
  }
  const parts: Part[] = sorted
    .slice(0, MAX_PARTS)
    .map((part, index) => ({ ...part, color: index + 1 }));
  if (rest.every((value) => value === 0)) return parts;
  return [
    ...parts,
    { id: undefined, label: REST, values: rest, total: sum(rest), color: undefined },
  ];
}

/** Returns the sum of the parts in each interval. */
export function totalsOf(parts: readonly Part[], count: number): number[] {
  return Array.from({ length: count }, (_, index) => sum(parts.map((part) => part.values[index]!)));
}

/**
 * Returns the heights of the tops of the parts, the top of the stack first. Each bar is drawn from zero, so the lower
 * ones cover the higher ones. Negative values, which are corrections, have no height.
 */
export function topsOf(parts: readonly Part[], count: number): number[][] {
  const tops: number[][] = [];
  let below: readonly number[] = Array.from({ length: count }, () => 0);
  for (const { values } of parts) {
    below = below.map((height, index) => height + Math.max(0, values[index]!));
    tops.unshift([...below]);
  }
  return tops;
}

/** Returns the part of a bar at a height. Returns undefined above the bar. */
export function partAt(parts: readonly Part[], index: number, height: number): Part | undefined {
  let top = 0;
  return parts.find((part) => {
    top += Math.max(0, part.values[index]!);
    return height <= top;
  });
}

function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}
