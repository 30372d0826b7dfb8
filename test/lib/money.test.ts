import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  chargeNanoUsd,
  femtoFromUsd,
  hasAtMostDecimals,
  holdNanoUsd,
  nanoFromUsd,
  usdNumber,
  usdText,
} from "../../src/lib/money.ts";

const anyNano = fc.bigInt({ min: -(10n ** 18n), max: 10n ** 18n });
const anyFemto = fc.bigInt({ min: 0n, max: 10n ** 24n });
const anyFee = fc.bigInt({ min: 0n, max: 10_000n });

describe("USD", () => {
  test.each([
    [0, 0n],
    [-0, 0n],
    [1, 1_000_000_000n],
    [0.1, 100_000_000n],
    [0.3, 300_000_000n],
    [1e-9, 1n],
    [1.000000001, 1_000_000_001n],
    [1e9, 10n ** 18n],
    [1e21, 10n ** 30n],
    [-3.5, -3_500_000_000n],
    ["12.340", 12_340_000_000n],
    ["1e3", 1_000_000_000_000n],
    ["1E+2", 100_000_000_000n],
    ["9007199254740993.000000001", 9_007_199_254_740_993_000_000_001n],
  ] as [number | string, bigint][])("%s is exact in nano-USD", (usd, nano) => {
    expect(nanoFromUsd(usd)).toBe(nano);
  });

  test.each([
    [4e-10, 0n],
    [5e-10, 1n],
    [-4e-10, 0n],
    [-5e-10, -1n],
    ["0.0000000014999", 1n],
    ["0.0000000015", 2n],
    [1e-300, 0n],
  ] as [number | string, bigint][])("%s is rounded half up, away from zero", (usd, nano) => {
    expect(nanoFromUsd(usd)).toBe(nano);
  });

  test.each([
    "",
    " 1",
    "1 ",
    "+1",
    "1.",
    ".5",
    "1e",
    "1,5",
    "0x10",
    "Infinity",
    "1_000",
    "1e500",
    "--1",
  ])("%j is no amount", (text) => {
    expect(() => nanoFromUsd(text)).toThrow(RangeError);
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY])("%p is no amount", (value) => {
    expect(() => nanoFromUsd(value)).toThrow(RangeError);
  });

  test("prices of single tokens keep what nano-USD would lose", () => {
    expect(femtoFromUsd(3.75e-8)).toBe(37_500_000n);
    expect(femtoFromUsd(1.5e-7)).toBe(150_000_000n);
    expect(femtoFromUsd(1e-15)).toBe(1n);
  });

  test("texts and amounts are the same thing, both ways", () => {
    fc.assert(
      fc.property(anyNano, (nano) => {
        const text = usdText(nano);
        expect(text).toMatch(/^-?\d+(\.\d{0,8}[1-9])?$/);
        expect(nanoFromUsd(text)).toBe(nano);
      }),
    );
    expect([0n, 12_000n, -3_500_000_000n, 10_000_000_000n, -1n].map(usdText)).toEqual([
      "0",
      "0.000012",
      "-3.5",
      "10",
      "-0.000000001",
    ]);
  });

  test("numbers in JSON stand nearest to their amounts, and come back from them up to millions", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 8_000_000_000_000_000n }), (nano) => {
        expect(nanoFromUsd(usdNumber(nano))).toBe(nano);
      }),
    );
  });

  test("amounts up to a million USD and beyond are told digit by digit", () => {
    const million = 10n ** 15n;
    const near = fc.oneof(
      fc.bigInt({ min: -million - 5n, max: -million + 5n }),
      fc.bigInt({ min: million - 10n ** 9n, max: million + 5n }),
      fc.bigInt({ min: -2_000_000_000n, max: 2_000_000_000n }),
    );
    fc.assert(
      fc.property(near, (nano) => {
        expect(usdText(nano)).toMatch(/^-?\d+(\.\d{0,8}[1-9])?$/);
        expect(nanoFromUsd(usdText(nano))).toBe(nano);
      }),
      { numRuns: 2_000 },
    );
  });

  test("numbers in JSON stand nearest to their amounts at the edge of safe integers too", () => {
    const edge = BigInt(Number.MAX_SAFE_INTEGER);
    for (const nano of [edge - 1n, edge, edge + 1n, edge + 2n, -edge, -edge - 1n]) {
      expect(usdNumber(nano)).toBe(Number(usdText(nano)));
    }
  });

  test("decimals are counted as they are written", () => {
    expect([5, 5.1, 5.12, 0.1, 1e2, 1e-2].map((value) => hasAtMostDecimals(value, 2))).toEqual(
      Array(6).fill(true),
    );
    expect(
      [5.123, 1e-3, 0.001, 1e-9, Number.NaN].map((value) => hasAtMostDecimals(value, 2)),
    ).toEqual(Array(5).fill(false));
    expect(hasAtMostDecimals(1e-9, 9)).toBe(true);
    expect(hasAtMostDecimals(1.5e-9, 9)).toBe(false);
    expect(hasAtMostDecimals(1e21, 0)).toBe(true);
  });
});

describe("costs", () => {
  test("are rounded half up to a nano-USD, once, with the fee in them", () => {
    expect(chargeNanoUsd(499_999n, 0n)).toBe(0n);
    expect(chargeNanoUsd(500_000n, 0n)).toBe(1n);
    expect(chargeNanoUsd(1_000_000n, 400n)).toBe(1n);
    expect(chargeNanoUsd(12_500_000n, 400n)).toBe(13n);
    expect(chargeNanoUsd(100_000_000n, 250n)).toBe(103n);
    expect(chargeNanoUsd(0n, 400n)).toBe(0n);
  });

  test("of a hold are rounded up", () => {
    expect(holdNanoUsd(1n, 0n)).toBe(1n);
    expect(holdNanoUsd(1_000_000n, 0n)).toBe(1n);
    expect(holdNanoUsd(1_000_001n, 0n)).toBe(2n);
    expect(holdNanoUsd(0n, 400n)).toBe(0n);
  });

  test("are the same to the last digit in numbers and in bigints, up to the last safe integer", () => {
    const edge = Number.MAX_SAFE_INTEGER;
    const anyNumber = fc.oneof(
      fc.integer({ min: 0, max: edge }),
      fc.integer({ min: edge - 1_000, max: edge }),
      fc.integer({ min: 0, max: 100_000 }).map((nano) => nano * 1_000_000 + 500_000),
    );
    const anyFactor = fc.oneof(anyFee, fc.bigInt({ min: 89_000n, max: 91_000n }));
    fc.assert(
      fc.property(anyNumber, anyFactor, (cost, fee) => {
        expect(chargeNanoUsd(cost, fee)).toBe(chargeNanoUsd(BigInt(cost), fee));
        expect(holdNanoUsd(cost, fee)).toBe(holdNanoUsd(BigInt(cost), fee));
      }),
      { numRuns: 5_000 },
    );
    // Each of the three rest divisions at its limit.
    for (const [cost, fee] of [
      [edge, 90_000n],
      [999_999, 90_000n],
      [9_999_999_999, 0n],
      [10_000_000_000, 1n],
    ] as const) {
      expect(chargeNanoUsd(cost, fee)).toBe(chargeNanoUsd(BigInt(cost), fee));
      expect(holdNanoUsd(cost, fee)).toBe(holdNanoUsd(BigInt(cost), fee));
    }
  });

  test("charged are never more than held for the same or more, and less than a nano-USD below it", () => {
    fc.assert(
      fc.property(anyFemto, anyFemto, anyFee, (cost, more, fee) => {
        expect(chargeNanoUsd(cost, fee)).toBeLessThanOrEqual(holdNanoUsd(cost + more, fee));
        expect(holdNanoUsd(cost, fee) - chargeNanoUsd(cost, fee)).toBeLessThanOrEqual(1n);
      }),
    );
  });
});
