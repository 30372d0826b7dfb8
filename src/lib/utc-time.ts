const ISO_8601 =
  /^(\d{4})-(\d{2})-(\d{2})(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(?:([Zz])|([+-]\d{2})(?::?(\d{2}))?)?)?$/;

/**
 * The earliest time. ISO 8601 writes years of four digits without a sign, and the database reads them: 0001 to
 * 9999, UTC.
 */
const MIN_TIME_MS = Date.parse("0001-01-01T00:00:00.000Z");
/** The latest time. */
export const MAX_TIME_MS = Date.parse("9999-12-31T23:59:59.999Z");

/** A time of ISO 8601. */
interface IsoTime {
  readonly ms: number;
  /** True for a date without a time of day. */
  readonly isWholeDay: boolean;
}

/**
 * Parses an ISO 8601 date, or date and time, as UTC if it has no offset. Returns undefined if the text is
 * neither.
 */
export function parseIsoTime(text: string): IsoTime | undefined {
  const match = ISO_8601.exec(text);
  if (!match) return undefined;
  const [, year, month, day, hour, minute, second = "00", fraction = "0"] = match;
  const isWholeDay = hour === undefined;
  const time = isWholeDay
    ? "00:00:00.000"
    : `${hour}:${minute}:${second}.${fraction.padEnd(3, "0").slice(0, 3)}`;
  const offset = match[9] === undefined ? "Z" : `${match[9]}:${match[10] ?? "00"}`;
  const ms = Date.parse(`${year}-${month}-${day}T${time}${offset}`);
  // The platform reads 30 February as a day in March, but such a date is invalid.
  const days = new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate();
  if (Number.isNaN(ms) || Number(day) > days) return undefined;
  if (ms < MIN_TIME_MS || ms > MAX_TIME_MS) return undefined;
  return { ms, isWholeDay };
}

export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}

/** A budget period: a UTC day or a UTC month. */
export interface Period {
  /** First day in the form YYYY-MM-DD. */
  readonly start: string;
  readonly startMs: number;
  /** First millisecond after the period. */
  readonly endMs: number;
}

/** The most recent periods: every key has a day and a month, and they are equal for all keys. */
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

/** Returns the same time on the same day of a later month, or on that month's last day if it is shorter. */
export function addUtcMonths(ms: number, months: number): number {
  const date = new Date(ms);
  const day = date.getUTCDate();
  date.setUTCDate(1);
  date.setUTCMonth(date.getUTCMonth() + months);
  const last = new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 0)).getUTCDate();
  date.setUTCDate(Math.min(day, last));
  return date.getTime();
}

function isoDate(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}
