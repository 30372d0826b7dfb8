import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { utcDay, utcMonth } from "../../src/lib/periods.ts";

const anyTime = fc.integer({ min: 0, max: Date.UTC(2400, 0, 1) });

describe("periods of budgets", () => {
  test.each([
    ["an ordinary day", "2026-03-14T12:00:00.000Z", "2026-03-14", "2026-03-01"],
    ["the first millisecond of a day", "2026-03-15T00:00:00.000Z", "2026-03-15", "2026-03-01"],
    ["the last millisecond of a day", "2026-03-14T23:59:59.999Z", "2026-03-14", "2026-03-01"],
    ["the last millisecond of a year", "2026-12-31T23:59:59.999Z", "2026-12-31", "2026-12-01"],
    ["the first millisecond of a year", "2027-01-01T00:00:00.000Z", "2027-01-01", "2027-01-01"],
    ["29 February of a leap year", "2028-02-29T23:59:59.999Z", "2028-02-29", "2028-02-01"],
    ["28 February of no leap year", "2027-02-28T23:59:59.999Z", "2027-02-28", "2027-02-01"],
    ["2100, which is no leap year", "2100-02-28T23:59:59.999Z", "2100-02-28", "2100-02-01"],
    ["2000, which was one", "2000-02-29T00:00:00.000Z", "2000-02-29", "2000-02-01"],
  ])("are UTC days and months: %s", (_, time, day, month) => {
    const nowMs = Date.parse(time);
    expect(utcDay(nowMs).start).toBe(day);
    expect(utcMonth(nowMs).start).toBe(month);
  });

  test("hold their time, and follow one another without a gap", () => {
    fc.assert(
      fc.property(anyTime, (nowMs) => {
        for (const period of [utcDay, utcMonth]) {
          const { start, startMs, endMs } = period(nowMs);
          expect(startMs).toBeLessThanOrEqual(nowMs);
          expect(nowMs).toBeLessThan(endMs);
          expect(Date.parse(start)).toBe(startMs);
          expect(period(startMs).start).toBe(start);
          expect(period(endMs - 1).start).toBe(start);
          expect(period(endMs).startMs).toBe(endMs);
        }
      }),
    );
  });

  test("are the same objects for everyone who asks within them", () => {
    const nowMs = Date.parse("2026-03-14T23:59:59.999Z");
    expect(utcDay(nowMs)).toBe(utcDay(nowMs - 3_600_000));
    expect(utcMonth(nowMs)).toBe(utcMonth(nowMs - 86_400_000));
    expect(() => utcDay(Number.NaN)).toThrow(RangeError);
    expect(() => utcMonth(Number.NaN)).toThrow(RangeError);
  });

  test("end for a month where they end for its last day", () => {
    fc.assert(
      fc.property(anyTime, (nowMs) => {
        const month = utcMonth(nowMs);
        expect(utcDay(month.endMs - 1).endMs).toBe(month.endMs);
        expect(utcDay(month.startMs).start).toBe(month.start);
      }),
    );
  });
});
