import { Type } from "typebox";
import { GatewayError } from "../lib/errors.ts";
import { MAX_TIME_MS, parseIsoTime } from "../lib/utc-time.ts";

const DAY_MS = 86_400_000;

/** Query fields that limit a list to a time span. */
export const timeSpanFields = {
  start_date: Type.Optional(Type.String({ maxLength: 64, description: "ISO 8601, inclusive." })),
  end_date: Type.Optional(
    Type.String({
      maxLength: 64,
      description: "ISO 8601; a date without a time means its whole day.",
    }),
  ),
};

export interface TimeSpanQuery {
  readonly start_date?: string;
  readonly end_date?: string;
}

interface TimeSpan {
  /** The start in milliseconds since the epoch, inclusive. */
  readonly fromMs: number | undefined;
  /** The end in milliseconds since the epoch, exclusive. */
  readonly beforeMs: number | undefined;
}

/** Returns the time span of a query. Throws 400 if a date is invalid or the start is after the end. */
export function timeSpan(query: TimeSpanQuery): TimeSpan {
  const start = query.start_date === undefined ? undefined : timeOf(query.start_date, "start_date");
  const end = query.end_date === undefined ? undefined : timeOf(query.end_date, "end_date");
  // The database stores microseconds, so an end in milliseconds includes its whole millisecond.
  const afterEndMs = end && end.ms + (end.isWholeDay ? DAY_MS : 1);
  // An end after the latest valid time excludes nothing.
  const beforeMs = afterEndMs && afterEndMs > MAX_TIME_MS ? undefined : afterEndMs;
  if (start && beforeMs !== undefined && start.ms >= beforeMs) {
    throw new GatewayError("invalid_query", "start_date is after end_date.", {
      param: "start_date",
    });
  }
  return { fromMs: start?.ms, beforeMs };
}

function timeOf(text: string, param: string) {
  const time = parseIsoTime(text);
  if (time !== undefined) return time;
  throw new GatewayError("invalid_query", `${param} must be an ISO 8601 date or time.`, { param });
}
