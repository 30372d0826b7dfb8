/** Budget periods are UTC days and UTC months. */
export interface Period {
  /** First day, YYYY-MM-DD. */
  readonly start: string;
  readonly startMs: number;
  /** First millisecond that no longer belongs to it. */
  readonly endMs: number;
}

/** The last ones asked for: every key has them, and all keys the same. */
let lastDay: Period | undefined;
let lastMonth: Period | undefined;

export function utcDay(nowMs: number): Period {
  if (lastDay === undefined || !isWithin(lastDay, nowMs)) lastDay = dayOf(nowMs);
  return lastDay;
}

export function utcMonth(nowMs: number): Period {
  if (lastMonth === undefined || !isWithin(lastMonth, nowMs)) lastMonth = monthOf(nowMs);
  return lastMonth;
}

function isWithin(period: Period, nowMs: number): boolean {
  return nowMs >= period.startMs && nowMs < period.endMs;
}

function dayOf(nowMs: number): Period {
  const date = new Date(nowMs);
  const startMs = Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate());
  return { start: isoDate(startMs), startMs, endMs: startMs + 86_400_000 };
}

function monthOf(nowMs: number): Period {
  const date = new Date(nowMs);
  const startMs = Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1);
  const endMs = Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1);
  return { start: isoDate(startMs), startMs, endMs };
}

function isoDate(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}
