import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { isoTime, parseIsoTime } from "../../src/lib/utc-time.ts";

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
