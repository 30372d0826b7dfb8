import { afterAll, describe, expect, test } from "bun:test";
import {
  intervalQuery,
  intervalTimes,
  latestMonths,
  parseRange,
  type Range,
  rangeFrom,
  rangeQuery,
  spanParameters,
} from "../../src/dashboard/web/range.ts";

const at = (iso: string) => Date.parse(iso);
const NOW = at("2026-11-29T06:20:31.500Z");
const iso = (ms: number) => new Date(ms).toISOString().slice(0, 16);

/** Returns start, end, and both of the period before. */
function boundsOf(range: Range | undefined): string[] {
  const { fromMs, beforeMs, before } = range!;
  return [fromMs, beforeMs, before.fromMs, before.beforeMs].map(iso);
}

const parsed = (query: string, nowMs = NOW) => parseRange(new URLSearchParams(query), nowMs);

describe("a range that moves with the time", () => {
  test("of 24 hours ends with the current hour, and is compared to the 24 hours before", () => {
    const range = rangeFrom("24h", NOW);
    expect(boundsOf(range)).toEqual([
      ...["2026-11-28T07:00", "2026-11-29T07:00"],
      ...["2026-11-27T07:00", "2026-11-28T07:00"],
    ]);
    expect(range.interval).toBe("hour");
    expect(intervalTimes(range, "hour")).toHaveLength(24);
  });

  test("of days ends with today, and is compared to a period that ends at the same hour", () => {
    expect(boundsOf(parsed("range=7d"))).toEqual([
      ...["2026-11-23T00:00", "2026-11-30T00:00"],
      ...["2026-11-16T00:00", "2026-11-22T07:00"],
    ]);
    const range = rangeFrom("30d", NOW);
    expect(boundsOf(range)[0]).toBe("2026-10-31T00:00");
    expect(intervalTimes(range, "day")).toHaveLength(30);
    expect(range.before.label).toBe("the 30 days before");
  });

  test("in the last hour of a day ends at the same midnight", () => {
    const nowMs = at("2026-11-29T23:59:59.999Z");
    expect(boundsOf(rangeFrom("7d", nowMs))).toEqual([
      ...["2026-11-23T00:00", "2026-11-30T00:00", "2026-11-16T00:00", "2026-11-23T00:00"],
    ]);
  });
});

describe("a month", () => {
  test("is compared to the same days of the month before", () => {
    const range = parsed("range=month");
    expect(boundsOf(range)).toEqual([
      ...["2026-11-01T00:00", "2026-11-30T00:00", "2026-10-01T00:00", "2026-10-29T07:00"],
    ]);
    expect(range!.label).toBe("November 2026");
    expect(range!.before.label).toBe("the same days of October");
  });

  test("is compared to the whole month before if that one has fewer days", () => {
    expect(boundsOf(parsed("range=month", at("2026-03-31T12:00:00Z")))).toEqual([
      ...["2026-03-01T00:00", "2026-04-01T00:00", "2026-02-01T00:00", "2026-03-01T00:00"],
    ]);
  });

  test("that is over is compared to the whole month before", () => {
    expect(boundsOf(parsed("range=2026-02"))).toEqual([
      ...["2026-02-01T00:00", "2026-03-01T00:00", "2026-01-01T00:00", "2026-02-01T00:00"],
    ]);
    expect(boundsOf(parsed("range=2024-02"))[1]).toBe("2024-03-01T00:00");
    expect(boundsOf(parsed("range=2026-01"))[2]).toBe("2025-12-01T00:00");
  });

  test("is listed with the months before it, over the end of a year", () => {
    expect(latestMonths(3, at("2026-01-31T23:59:59Z"))).toEqual([
      ["2026-01", "January 2026"],
      ["2025-12", "December 2025"],
      ["2025-11", "November 2025"],
    ]);
  });
});

describe("a range of the viewer's own", () => {
  test("contains its last day, and ends at a stated hour", () => {
    expect(boundsOf(parsed("from=2026-11-03&to=2026-11-09"))).toEqual([
      ...["2026-11-03T00:00", "2026-11-10T00:00", "2026-10-27T00:00", "2026-11-03T00:00"],
    ]);
    expect(boundsOf(parsed("from=2026-11-03T14Z&to=2026-11-03T15Z"))).toEqual([
      ...["2026-11-03T14:00", "2026-11-03T15:00", "2026-11-03T13:00", "2026-11-03T14:00"],
    ]);
  });

  test("ends today at the latest", () => {
    expect(boundsOf(parsed("from=2026-11-20&to=2027-03-01"))[1]).toBe("2026-11-30T00:00");
    expect(boundsOf(parsed("from=2026-11-20"))[1]).toBe("2026-11-30T00:00");
  });

  test("has hours, days or months as intervals, by its length", () => {
    const interval = (from: string) => parsed(`from=${from}&to=2026-11-10`)!.interval;
    const intervals = ["2026-11-09", "2026-11-08", "2026-08-10", "2026-08-09"].map(interval);
    expect(intervals).toEqual(["hour", "day", "day", "month"]);
    const range = parsed("from=2026-01-15&to=2026-11-10")!;
    const times = intervalTimes(range, range.interval).map((time) => iso(time * 1_000));
    expect([times[0], times.at(-1), times.length]).toEqual([
      ...["2026-01-01T00:00", "2026-11-01T00:00", 11],
    ]);
  });

  test("that is invalid is none", () => {
    for (const query of [
      ...["", "range=", "range=8d", "range=custom", "range=constructor", "range=__proto__"],
      ...["range=2026-13", "range=2026-00", "range=2027-01", "range=1970-01", "range=2026-1"],
      ...[
        "from=2026-02-30&to=2026-03-01",
        "from=x",
        "to=x",
        "from=2026-11-03T24Z",
        "from=0001-01-01",
      ],
      ...["from=2026-11-10&to=2026-11-09", "from=2026-12-01", "from=2020-01-01&to=2026-01-01"],
      ...["from=2026-11-03T14:30Z", "from=20261103", "from=2026-11-03%00"],
    ]) {
      expect([query, parsed(query)]).toEqual([query, undefined]);
    }
  });
});

describe("the query for one bar", () => {
  test("names its day, its hour, or its month within the range", () => {
    const range = rangeFrom("7d", NOW);
    const [first] = intervalTimes(range, "day");
    expect(intervalQuery(range, "day", first!)).toEqual({
      ...{ range: undefined, from: "2026-11-23", to: "2026-11-23" },
    });
    const hours = rangeFrom("24h", NOW);
    expect(intervalQuery(hours, "hour", intervalTimes(hours, "hour")[16]!)).toEqual({
      ...{ range: undefined, from: "2026-11-28T23Z", to: "2026-11-29T00Z" },
    });
    const months = parsed("from=2026-01-15&to=2026-11-10")!;
    const [january, ...later] = intervalTimes(months, "month");
    const queries = [january!, later.at(-1)!].map((time) => intervalQuery(months, "month", time));
    expect(queries.map(({ from, to }) => [from, to])).toEqual([
      ["2026-01-15", "2026-01-31"],
      ["2026-11-01", "2026-11-10"],
    ]);
  });

  test("states the range that it came from, as each query of a range does", () => {
    for (const query of [
      "range=24h",
      "range=2026-02",
      "from=2026-11-03&to=2026-11-09",
      "from=2026-11-03T14Z&to=2026-11-04T00Z",
    ]) {
      const range = parsed(query)!;
      const entries = Object.entries(rangeQuery(range)).filter(([, value]) => value !== undefined);
      expect(boundsOf(parsed(String(new URLSearchParams(entries as [string, string][]))))).toEqual(
        boundsOf(range),
      );
    }
  });
});

test("the API gets times in UTC, with the end excluded", () => {
  expect(spanParameters(parsed("from=2026-11-03&to=2026-11-09")!)).toEqual({
    start_date: "2026-11-03T00:00:00.000Z",
    end_date: "2026-11-10T00:00:00.000Z",
  });
});

describe("a viewer's time zone", () => {
  const zone = process.env.TZ;
  afterAll(() => {
    if (zone === undefined) delete process.env.TZ;
    else process.env.TZ = zone;
  });

  test("moves no range, and no interval is missing or doubled when its clocks change", () => {
    const spring = at("2026-03-29T12:00:00Z");
    const autumn = at("2026-10-25T12:00:00Z");
    const found = ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York"].map((name) => {
      process.env.TZ = name;
      return [spring, autumn].map((nowMs) => {
        const [hours, days] = [rangeFrom("24h", nowMs), rangeFrom("7d", nowMs)];
        const times = [intervalTimes(hours, "hour"), intervalTimes(days, "day")];
        expect(times.map((each) => new Set(each).size)).toEqual([24, 7]);
        return [boundsOf(hours), boundsOf(days), times];
      });
    });
    for (const other of found.slice(1)) expect(other).toEqual(found[0]!);
  });
});
