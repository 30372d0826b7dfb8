import { Type } from "typebox";
import { GatewayError } from "../../lib/errors.ts";
import { isoTime, parseIsoTime } from "../../lib/utc-time.ts";

const MAX_PAGE = 1_000;
const DEFAULT_PAGE = 100;

/** Query parameters of totals by time interval. */
export const intervalFields = {
  start_date: Type.Optional(
    Type.String({ maxLength: 64, description: "ISO 8601, inclusive; rounded down to the hour." }),
  ),
  end_date: Type.Optional(
    Type.String({
      maxLength: 64,
      description: "ISO 8601, exclusive; can be a date without a time.",
    }),
  ),
  interval: Type.Optional(Type.Enum(["hour", "day", "month"], { default: "day" })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
  offset: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
};

type Interval = "hour" | "day" | "month";

export interface IntervalQuery {
  readonly start_date?: string;
  readonly end_date?: string;
  readonly interval?: Interval;
  readonly limit?: number;
  readonly offset?: number;
}

/**
 * Returns the parsed query with its defaults. Throws 400 if a date is invalid, or if the start is after the end.
 */
export function intervalPage(query: IntervalQuery) {
  const fromMs = timeOf(query.start_date, "start_date");
  const beforeMs = timeOf(query.end_date, "end_date");
  if (fromMs !== undefined && beforeMs !== undefined && fromMs > beforeMs) {
    throw invalidQuery("start_date", "must not be after end_date");
  }
  const { interval = "day", limit = DEFAULT_PAGE, offset = 0 } = query;
  return { interval, fromMs, beforeMs, limit, offset };
}

function timeOf(text: string | undefined, param: string): number | undefined {
  if (text === undefined) return undefined;
  const time = parseIsoTime(text);
  if (time === undefined) throw invalidQuery(param, "must be an ISO 8601 date or time");
  return time.ms;
}

export function invalidQuery(param: string, problem: string): GatewayError {
  return new GatewayError("invalid_query", `Query parameter "${param}" ${problem}.`, { param });
}

export const intervalDate = Type.String({
  description: "Start of the interval, UTC: a time for an hour, a date for a day or a month.",
});

export function dateOf(startMs: number, interval: Interval): string {
  const time = isoTime(startMs);
  return interval === "hour"
    ? `${time.slice(0, "YYYY-MM-DDTHH:mm:ss".length)}Z`
    : time.slice(0, "YYYY-MM-DD".length);
}
