import { steadyClock } from "../../src/lib/clock.ts";
import type { Coordination } from "../../src/platform/cluster/interface.ts";

/** An admission happened at some moment between asking and the answer. */
export interface Admission {
  readonly instance: number;
  readonly askedMs: number;
  readonly answeredMs: number;
  /** What it counts for, where that is not one. */
  readonly amount?: number;
}

/** Times of which at least one lies within a window, for windows that see something. */
export interface Trouble {
  readonly fromMs: number;
  readonly untilMs: number;
}

export interface Busiest {
  /** Most admissions of any window without trouble, and of any with it. */
  readonly calm: number;
  readonly troubled: number;
}

/** Asks at once through one instance and notes what was admitted. */
export async function ask(
  coordinations: readonly Coordination[],
  instance: number,
  key: string,
  limit: number,
  admissions: Admission[],
): Promise<void> {
  const askedMs = steadyClock.nowMs();
  const { isAdmitted } = await coordinations[instance]!.rates.take(key, limit);
  if (isAdmitted) admissions.push({ instance, askedMs, answeredMs: steadyClock.nowMs() });
}

/**
 * The most admissions that certainly lay within one window. A window begins with an admission, so looking
 * at those is enough; what may have happened before or after is not counted.
 */
export function busiestWindows(
  admissions: readonly Admission[],
  windowMs: number,
  troubles: readonly Trouble[] = [],
): Busiest {
  const sorted = admissions.toSorted((a, b) => a.askedMs - b.askedMs);
  let calm = 0;
  let troubled = 0;
  for (const [i, { askedMs }] of sorted.entries()) {
    const endMs = askedMs + windowMs;
    let count = 0;
    for (let j = i; j < sorted.length && sorted[j]!.askedMs <= endMs; j++) {
      if (sorted[j]!.answeredMs <= endMs) count += sorted[j]!.amount ?? 1;
    }
    const isTroubled = troubles.some(
      ({ fromMs, untilMs }) => fromMs <= endMs && untilMs >= askedMs,
    );
    if (isTroubled) troubled = Math.max(troubled, count);
    else calm = Math.max(calm, count);
  }
  return { calm, troubled };
}
