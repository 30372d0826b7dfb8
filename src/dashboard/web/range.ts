/*
 * Ranges of time that pages show. Hours and days begin in UTC, as the API counts them. A range is in the query of
 * its page: `range` names one that moves with the time, or a month. `from` and `to` state another one.
 */

const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
/** Longer ranges have days as intervals. */
const MAX_HOURLY_MS = 2 * DAY_MS;
/** Longer ranges have months as intervals, so that one answer of the API contains all rows of a chart. */
const MAX_DAILY_MS = 93 * DAY_MS;
/** Longest range, and age of the first listed month. The API ranks names over at most as many days. */
const MAX_RANGE_MS = 400 * DAY_MS;
const MS_PER_SECOND = 1_000;

export type Interval = "hour" | "day" | "month";
export type RangeId = "24h" | "7d" | "30d" | "month";

export interface Period {
  /** Start in milliseconds since the epoch, inclusive. The start of an hour in UTC. */
  readonly fromMs: number;
  /** End in milliseconds since the epoch, exclusive. The start of an hour in UTC. */
  readonly beforeMs: number;
}

export interface Range extends Period {
  readonly id: RangeId | "custom";
  readonly interval: Interval;
  /** Such as "Last 7 days". */
  readonly label: string;
  /** The period before of the same length. As long as the range lasts, it ends as early as the range does now. */
  readonly before: Period & { readonly label: string };
}

/** Start and end in a page's query. */
type RangeQuery = Readonly<Record<"range" | "from" | "to", string | undefined>>;

/** Returns the range that the query of a page states. Returns undefined if it states none, or an invalid one. */
export function parseRange(query: URLSearchParams, nowMs: number): Range | undefined {
  const [from, to] = [query.get("from"), query.get("to")];
  if (from || to) return customRange(from || to!, to || dayOf(nowMs), nowMs);
  const id = query.get("range") ?? "";
  if (/^20\d{2}-\d{2}$/.test(id)) return monthOf(id, nowMs);
  return Object.hasOwn(SLIDING_MS, id) || id === "month"
    ? rangeFrom(id as RangeId, nowMs)
    : undefined;
}

const SLIDING_MS = { "24h": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS } as const;

/** Returns the range that ends with the current hour, or with the current UTC day. */
export function rangeFrom(id: RangeId, nowMs: number): Range {
  if (id === "month") return monthOf(dayOf(nowMs).slice(0, "YYYY-MM".length), nowMs)!;
  const lengthMs = SLIDING_MS[id];
  const beforeMs = id === "24h" ? nextHour(nowMs) : nextDay(nowMs);
  const length = id === "24h" ? "24 hours" : `${lengthMs / DAY_MS} days`;
  return {
    ...{ id, fromMs: beforeMs - lengthMs, beforeMs, label: `Last ${length}` },
    interval: id === "24h" ? "hour" : "day",
    before: earlier(beforeMs - lengthMs, beforeMs, nowMs, `the ${length} before`),
  };
}

/** Returns a month, of the current one the days until today. Compares it to the same days of the month before. */
function monthOf(month: string, nowMs: number): Range | undefined {
  const fromMs = parseDay(`${month}-01`);
  if (fromMs === undefined || fromMs > nowMs) return undefined;
  const previousMs = monthsAfter(fromMs, -1);
  const isCurrent = monthsAfter(fromMs, 1) > nowMs;
  const name = monthName(previousMs);
  return {
    ...{ id: "month", fromMs, interval: "day", label: monthName(fromMs, true) },
    beforeMs: isCurrent ? nextDay(nowMs) : monthsAfter(fromMs, 1),
    before: {
      fromMs: previousMs,
      // The month before can have fewer days.
      beforeMs: isCurrent ? Math.min(previousMs + nextHour(nowMs) - fromMs, fromMs) : fromMs,
      label: isCurrent ? `the same days of ${name}` : name,
    },
  };
}

/** Returns the range from a day or time to a day, which it contains, or to a time, at which it ends. */
function customRange(from: string, to: string, nowMs: number): Range | undefined {
  const fromMs = parseTime(from);
  const dayMs = parseDay(to);
  const toMs = dayMs === undefined ? parseTime(to) : dayMs + DAY_MS;
  if (fromMs === undefined || toMs === undefined) return undefined;
  const beforeMs = Math.min(toMs, nextDay(nowMs));
  const lengthMs = beforeMs - fromMs;
  if (lengthMs <= 0 || lengthMs > MAX_RANGE_MS) return undefined;
  return {
    ...{ id: "custom", fromMs, beforeMs, label: spanLabel(fromMs, beforeMs) },
    interval: lengthMs <= MAX_HOURLY_MS ? "hour" : lengthMs <= MAX_DAILY_MS ? "day" : "month",
    before: earlier(fromMs, beforeMs, nowMs, `the ${lengthText(lengthMs)} before`),
  };
}

function earlier(fromMs: number, beforeMs: number, nowMs: number, label: string) {
  const endMs = Math.min(beforeMs, nextHour(nowMs));
  const lengthMs = beforeMs - fromMs;
  return { fromMs: fromMs - lengthMs, beforeMs: endMs - lengthMs, label };
}

/** Returns the start times of the intervals of a period, in Unix seconds. Only the first can begin before it. */
export function intervalTimes({ fromMs, beforeMs }: Period, interval: Interval): number[] {
  const times: number[] = [];
  let startMs = interval === "hour" ? fromMs : startOfDay(fromMs);
  if (interval === "month") startMs = parseDay(`${dayOf(fromMs).slice(0, -3)}-01`)!;
  for (; startMs < beforeMs; startMs = intervalEnd(startMs, interval)) {
    times.push(startMs / MS_PER_SECOND);
  }
  return times;
}

/** Returns the query of a page for one interval of a range, given by its start in Unix seconds. */
export function intervalQuery(range: Period, interval: Interval, time: number): RangeQuery {
  const startMs = time * MS_PER_SECOND;
  const fromMs = Math.max(startMs, range.fromMs);
  return periodQuery(fromMs, Math.min(intervalEnd(startMs, interval), range.beforeMs));
}

/** Returns the query of a page for a range. */
export function rangeQuery(range: Range): RangeQuery {
  if (range.id === "custom") return periodQuery(range.fromMs, range.beforeMs);
  const month = dayOf(range.fromMs).slice(0, "YYYY-MM".length);
  return { range: range.id === "month" ? month : range.id, from: undefined, to: undefined };
}

function periodQuery(fromMs: number, beforeMs: number): RangeQuery {
  const isDays = fromMs % DAY_MS === 0 && beforeMs % DAY_MS === 0;
  const time = (ms: number) => `${iso(ms).slice(0, "YYYY-MM-DDTHH".length)}Z`;
  return isDays
    ? { range: undefined, from: dayOf(fromMs), to: dayOf(beforeMs - DAY_MS) }
    : { range: undefined, from: time(fromMs), to: time(beforeMs) };
}

/** Returns start and end as parameters of the figures of the API, which exclude the end. */
export function spanParameters({ fromMs, beforeMs }: Period): Record<string, string> {
  return { start_date: iso(fromMs), end_date: iso(beforeMs) };
}

/** Returns the first and the last UTC day of a period. */
export function daysOf({ fromMs, beforeMs }: Period): { from: string; to: string } {
  return { from: dayOf(fromMs), to: dayOf(beforeMs - 1) };
}

/** Returns months as values of `range`, the current one first, with their names. */
export function latestMonths(count: number, nowMs: number): [month: string, name: string][] {
  const currentMs = parseDay(`${dayOf(nowMs).slice(0, -3)}-01`)!;
  return Array.from({ length: count }, (_, age) => {
    const ms = monthsAfter(currentMs, -age);
    return [dayOf(ms).slice(0, "YYYY-MM".length), monthName(ms, true)];
  });
}

/** Returns the milliseconds of a UTC day such as 2026-11-03. Returns undefined for others, such as 2026-02-30. */
function parseDay(text: string): number | undefined {
  const ms = /^\d{4}-\d{2}-\d{2}$/.test(text) ? Date.parse(text) : Number.NaN;
  return !Number.isNaN(ms) && dayOf(ms) === text ? ms : undefined;
}

/** Returns the milliseconds of a UTC day, or of an hour such as 2026-11-03T14Z. */
function parseTime(text: string): number | undefined {
  const [, day = text, hour = "00"] = /^(.{10})T([01]\d|2[0-3])Z$/.exec(text) ?? [];
  const dayMs = parseDay(day);
  return dayMs === undefined ? undefined : dayMs + Number(hour) * HOUR_MS;
}

function iso(ms: number): string {
  return new Date(ms).toISOString();
}

function dayOf(ms: number): string {
  return iso(ms).slice(0, "YYYY-MM-DD".length);
}

function startOfDay(ms: number): number {
  return Math.floor(ms / DAY_MS) * DAY_MS;
}

function nextDay(ms: number): number {
  return startOfDay(ms) + DAY_MS;
}

function nextHour(ms: number): number {
  return (Math.floor(ms / HOUR_MS) + 1) * HOUR_MS;
}

/** Returns the start of a month, counted from the start of another one. */
function monthsAfter(ms: number, months: number): number {
  const date = new Date(ms);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + months);
}

function intervalEnd(startMs: number, interval: Interval): number {
  if (interval === "month") return monthsAfter(startMs, 1);
  return startMs + (interval === "hour" ? HOUR_MS : DAY_MS);
}

function monthName(ms: number, hasYear = false): string {
  const year = hasYear ? ({ year: "numeric" } as const) : {};
  return new Date(ms).toLocaleString("en-US", { month: "long", timeZone: "UTC", ...year });
}

function lengthText(ms: number): string {
  const [count, unit] = ms % DAY_MS === 0 ? [ms / DAY_MS, "day"] : [ms / HOUR_MS, "hour"];
  return count === 1 ? unit : `${count} ${unit}s`;
}

/** Returns a label such as "Nov 3 – Nov 9, 2026". Days are in UTC, hours in the viewer's time zone. */
function spanLabel(fromMs: number, beforeMs: number): string {
  const day = { day: "numeric", month: "short", year: "numeric" } as const;
  if (fromMs % DAY_MS === 0 && beforeMs % DAY_MS === 0) {
    const form = new Intl.DateTimeFormat("en-US", { ...day, timeZone: "UTC" });
    return form.formatRange(fromMs, beforeMs - DAY_MS);
  }
  const clock = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const;
  return new Intl.DateTimeFormat("en-US", { ...day, ...clock }).formatRange(fromMs, beforeMs);
}
