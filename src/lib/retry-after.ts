/** The longest wait that is accepted from another server, in milliseconds. */
export const MAX_RETRY_AFTER_MS = 86_400_000;

const DECIMAL = /^\d{1,12}(?:\.\d{1,9})?$/;
/** IMF-fixdate, RFC 850 and asctime dates all begin with the name of a weekday. */
const HTTP_DATE = /^(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? /i;

/**
 * Returns the wait that a response requests, in milliseconds: `retry-after-ms`, otherwise `Retry-After` as
 * seconds or as a date (RFC 9110, section 10.2.3). Returns undefined if neither is readable. A date in the past
 * is 0, and a wait is at most MAX_RETRY_AFTER_MS.
 */
export function retryAfterMs(
  headers: { get(name: string): string | null },
  nowMs: number,
): number | undefined {
  const milliseconds = headers.get("retry-after-ms")?.trim();
  if (milliseconds !== undefined && DECIMAL.test(milliseconds)) {
    return boundedWaitMs(Number(milliseconds));
  }
  const value = headers.get("retry-after")?.trim();
  if (value === undefined) return undefined;
  if (DECIMAL.test(value)) return boundedWaitMs(Number(value) * 1000);
  if (!HTTP_DATE.test(value)) return undefined;
  const dateMs = Date.parse(value);
  return Number.isNaN(dateMs) ? undefined : boundedWaitMs(dateMs - nowMs);
}

/** Returns the wait clamped to 0 … MAX_RETRY_AFTER_MS and rounded up to a whole millisecond. */
export function boundedWaitMs(waitMs: number): number {
  return Math.min(MAX_RETRY_AFTER_MS, Math.max(0, Math.ceil(waitMs)));
}
