import { expect, test } from "bun:test";
import { MAX_RETRY_AFTER_MS, retryAfterMs } from "../../src/lib/retry-after.ts";

const NOW_MS = Date.UTC(2026, 0, 1, 12, 0, 0);

test.each([
  [{ "retry-after": "7" }, 7_000],
  [{ "retry-after": " 0 " }, 0],
  [{ "retry-after": "0.25" }, 250],
  [{ "retry-after-ms": "250" }, 250],
  [{ "retry-after-ms": "12.3" }, 13],
  [{ "retry-after-ms": "5", "retry-after": "9" }, 5],
  [{ "retry-after-ms": "soon", "retry-after": "9" }, 9_000],
  [{ "retry-after": "Thu, 01 Jan 2026 12:01:30 GMT" }, 90_000],
  [{ "retry-after": "Thursday, 01-Jan-26 12:01:30 GMT" }, 90_000],
  [{ "retry-after": "Thu, 01 Jan 2026 11:00:00 GMT" }, 0],
  [{ "retry-after": "999999999999" }, MAX_RETRY_AFTER_MS],
  [{ "retry-after": "Fri, 01 Jan 2100 00:00:00 GMT" }, MAX_RETRY_AFTER_MS],
] as const)("%p asks to wait %d ms", (headers, expected) => {
  expect(retryAfterMs(new Headers(headers as Record<string, string>), NOW_MS)).toBe(expected);
});

test.each(["", "soon", "-5", "1e3", "5s", "NaN", "Thu, 99 Foo 2026", "1".repeat(400)])(
  "Retry-After %p asks nothing",
  (value) => {
    expect(retryAfterMs(new Headers({ "retry-after": value }), NOW_MS)).toBeUndefined();
  },
);
