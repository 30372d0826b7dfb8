import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { addUtcMonths, isoTime, parseIsoTime, utcDay, utcMonth } from "../../src/lib/utc-time.ts";

describe("times of ISO 8601", () => {
  test.each([
    ["2026-03-14", Date.UTC(2026, 2, 14), true],
    ["2026-03-14T15:09", Date.UTC(2026, 2, 14, 15, 9), false],
    ["2026-03-14T15:09:26", Date.UTC(2026, 2, 14, 15, 9, 26), false],
    ["2026-03-14T15:09:26Z", Date.UTC(2026, 2, 14, 15, 9, 26), false],
    ["2026-03-14t15:09:26z", Date.UTC(2026, 2, 14, 15, 9, 26), false],
    ["2026-03-14 15:09:26", Date.UTC(2026, 2, 14, 15, 9, 26), false],
    ["2026-03-14T15:09:26.5Z", Date.UTC(2026, 2, 14, 15, 9, 26, 500), false],
    ["2026-03-14T15:09:26.123456789Z", Date.UTC(2026, 2, 14, 15, 9, 26, 123), false],
    ["2026-03-14T15:09:26+02:00", Date.UTC(2026, 2, 14, 13, 9, 26), false],
    ["2026-03-14T00:30:00-0130", Date.UTC(2026, 2, 14, 2), false],
    ["2026-03-14 15:09:26.5+00", Date.UTC(2026, 2, 14, 15, 9, 26, 500), false],
    ["2026-03-14T15:09:26,5-01", Date.UTC(2026, 2, 14, 16, 9, 26, 500), false],
    ["2028-02-29", Date.UTC(2028, 1, 29), true],
    ["0001-01-01T00:00:00Z", Date.parse("0001-01-01T00:00:00Z"), false],
    ["9999-12-31T23:59:59.999Z", Date.UTC(9999, 11, 31, 23, 59, 59, 999), false],
  ])("are read: %s", (text, ms, isWholeDay) => {
    expect(parseIsoTime(text)).toEqual({ ms, isWholeDay });
  });

  test.each([
    "",
    "2026",
    "2026-03",
    "2026-3-14",
    "2026-02-30",
    "2027-02-29",
    "2100-02-29",
    "2026-04-31",
    "2026-13-01",
    "2026-00-01",
    "2026-01-00",
    "2026-01-32",
    "2026-03-14T25:00",
    "2026-03-14T15:60",
    "2026-03-14T15:09:60Z",
    "2026-03-14T15",
    "2026-03-14T15:09:26.Z",
    "2026-03-14T15:09:26.1234567890Z",
    "2026-03-14T15:09:26+24:00",
    "2026-03-14T15:09:26+2:00",
    "2026-03-14T15:09:26+2",
    "2026-03-14T15:09:26+02:",
    "2026-03-14T15:09:26+020",
    "2026-03-14Z",
    " 2026-03-14",
    "2026-03-14\n",
    "14.3.2026",
    "1773500966",
    "now",
    "٢٠٢٦-٠٣-١٤",
    "0000-12-31",
    "0001-01-01T00:00:00+00:01",
    "9999-12-31T23:59:59.999-00:01",
  ])("are not guessed at: %j", (text) => {
    expect(parseIsoTime(text)).toBeUndefined();
  });

  test("come back as they were written", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: Date.UTC(9999, 11, 31) }), (ms) => {
        expect(parseIsoTime(isoTime(ms))).toEqual({ ms, isWholeDay: false });
        const day = isoTime(ms).slice(0, 10);
        expect(parseIsoTime(day)).toEqual({ ms: Date.parse(day), isWholeDay: true });
      }),
    );
  });

  test("of any text are a time or none, and never a failure", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 40 }), (text) => {
        const time = parseIsoTime(text);
        if (time !== undefined) expect(Number.isFinite(time.ms)).toBe(true);
      }),
    );
  });
});

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

test.each([
  ["2026-01-31T10:00:00.500Z", 1, "2026-02-28T10:00:00.500Z"],
  ["2028-01-31T10:00:00.000Z", 1, "2028-02-29T10:00:00.000Z"],
  ["2026-01-31T10:00:00.000Z", 2, "2026-03-31T10:00:00.000Z"],
  ["2026-11-30T00:00:00.000Z", 3, "2027-02-28T00:00:00.000Z"],
  ["2026-05-15T23:59:59.999Z", 12, "2027-05-15T23:59:59.999Z"],
  ["2026-05-15T23:59:59.999Z", 0, "2026-05-15T23:59:59.999Z"],
])("%s and %d months are %s", (start, months, end) => {
  expect(new Date(addUtcMonths(Date.parse(start), months)).toISOString()).toBe(end);
});
