import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { MAX_PARTS, partAt, stackOf, topsOf, totalsOf } from "../../src/dashboard/web/stack.ts";

const TIMES = [0, 3_600, 7_200];
const label = (id: string | null) => id ?? "None";
const valuesOf = (parts: ReturnType<typeof stackOf>) =>
  parts.map((part) => [part.label, part.total, ...part.values]);

describe("stacked parts", () => {
  test("are the largest by total, and the others are summed in one part", () => {
    const amounts = Array.from({ length: MAX_PARTS + 2 }, (_, index) => ({
      ...{ time: TIMES[index % 3]!, id: `model ${index}`, value: 10 - index },
    }));
    const parts = stackOf(amounts, TIMES, label);
    expect(parts.map((part) => part.label)).toEqual([
      ...Array.from({ length: MAX_PARTS }, (_, index) => `model ${index}`),
      "Others",
    ]);
    expect(parts.at(-1)).toEqual({
      ...{ id: undefined, label: "Others", values: [4, 3, 0], total: 7, color: undefined },
    });
    const total = amounts.reduce((sum, { value }) => sum + value, 0);
    expect(parts.reduce((sum, part) => sum + part.total, 0)).toBe(total);
    expect(totalsOf(parts, 3).reduce((sum, value) => sum + value, 0)).toBe(total);
  });

  test("have no part for others if there are none", () => {
    const amounts = Array.from({ length: MAX_PARTS }, (_, index) => ({
      ...{ time: 0, id: `${index}`, value: 1 },
    }));
    expect(stackOf(amounts, TIMES, label)).toHaveLength(MAX_PARTS);
    expect(stackOf([], TIMES, label)).toEqual([]);
  });

  test("add up rows of one name, and keep the rest of the API apart from a name like it", () => {
    const parts = stackOf(
      [
        { time: 0, id: "other", value: 1 },
        { time: 0, id: "other", value: 2 },
        { time: 3_600, id: "other", value: 4, isRest: true },
        { time: 0, id: null, value: 0.5 },
      ],
      TIMES,
      label,
    );
    expect(valuesOf(parts)).toEqual([
      ["other", 3, 3, 0, 0],
      ["None", 0.5, 0.5, 0, 0],
      ["Others", 4, 0, 4, 0],
    ]);
  });

  test("leave out names without a value, other times, and values that are not numbers", () => {
    const parts = stackOf(
      [
        { time: 0, id: "none", value: 0 },
        { time: 1, id: "elsewhere", value: 5 },
        { time: 0, id: "broken", value: Number.NaN },
        { time: 0, id: "one", value: 1 },
      ],
      TIMES,
      label,
    );
    expect(valuesOf(parts)).toEqual([["one", 1, 1, 0, 0]]);
  });

  test("are stacked, and the part at a height is the one whose bar covers it", () => {
    const parts = stackOf(
      [
        { time: 0, id: "a", value: 5 },
        { time: 0, id: "b", value: 3 },
        { time: 3_600, id: "b", value: 1 },
        { time: 3_600, id: "a", value: -1 },
      ],
      TIMES,
      label,
    );
    expect(parts.map(({ id }) => id)).toEqual(["a", "b"]);
    expect(topsOf(parts, 3)).toEqual([
      [8, 1, 0],
      [5, 0, 0],
    ]);
    const at = (index: number, height: number) => partAt(parts, index, height)?.id;
    expect([at(0, 1), at(0, 5), at(0, 5.1), at(0, 8.1), at(1, 0.5)]).toEqual([
      ...["a", "a", "b", undefined, "b"],
    ]);
  });
});

/** Relative luminance by WCAG 2. */
function luminance(hex: string): number {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const share = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}

function contrast(one: string, other: string): number {
  const [low, high] = [luminance(one), luminance(other)].toSorted((a, b) => a - b);
  return (high! + 0.05) / (low! + 0.05);
}

test("each part has a colour with a contrast of 3 to 1 to panels and pages, in light and dark", async () => {
  const style = await Bun.file(join(import.meta.dir, "../../src/dashboard/web/style.css")).text();
  const colors = new Map(
    [...style.matchAll(/--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)/g)].map(
      ([, name, ...values]) => [name!, values] as const,
    ),
  );
  const names = [
    ...Array.from({ length: MAX_PARTS }, (_, at) => `series-${at + 1}`),
    "series-rest",
  ];
  const weak = names.flatMap((name) =>
    ["page", "raised"].flatMap((ground) =>
      [0, 1]
        .filter((at) => contrast(colors.get(name)![at]!, colors.get(ground)![at]!) < 3)
        .map((at) => `${name} on ${ground}, ${at === 0 ? "light" : "dark"}`),
    ),
  );
  expect(weak).toEqual([]);
});
