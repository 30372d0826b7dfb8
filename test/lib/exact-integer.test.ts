import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { exact, plus, times } from "../../src/lib/exact-integer.ts";

const EDGE = BigInt(Number.MAX_SAFE_INTEGER);
const anyInteger = fc.oneof(
  fc.bigInt({ min: -1_000n, max: 1_000n }),
  fc.bigInt({ min: EDGE - 3n, max: EDGE + 3n }),
  fc.bigInt({ min: -EDGE - 3n, max: -EDGE + 3n }),
  fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }),
);

describe("an exact integer", () => {
  test("is a number while that is safe, and a bigint beyond", () => {
    expect(exact(EDGE)).toBe(Number.MAX_SAFE_INTEGER);
    expect(exact(-EDGE)).toBe(-Number.MAX_SAFE_INTEGER);
    expect(exact(EDGE + 1n)).toBe(EDGE + 1n);
    expect(exact(-EDGE - 1n)).toBe(-EDGE - 1n);
    expect(plus(Number.MAX_SAFE_INTEGER, 1)).toBe(EDGE + 1n);
    expect(plus(EDGE + 1n, -1)).toBe(Number.MAX_SAFE_INTEGER);
    expect(times(2 ** 27, 2 ** 26)).toBe(2n ** 53n);
    expect(times(0, -5)).toBe(0);
  });

  test.each([0.5, Number.NaN, Number.POSITIVE_INFINITY])("is never made of %p", (number) => {
    expect(() => times(number, 2_000_000)).toThrow(RangeError);
    expect(() => plus(number, 0.5)).toThrow(RangeError);
  });

  test("has the sum and the product that bigints have, on either side of what is safe", () => {
    fc.assert(
      fc.property(anyInteger, anyInteger, (one, other) => {
        expect(plus(exact(one), exact(other))).toBe(exact(one + other));
        expect(times(exact(one), exact(other))).toBe(exact(one * other));
        // What was not brought into its shape counts as well.
        expect(plus(one, exact(other))).toBe(exact(one + other));
        expect(times(exact(one), other)).toBe(exact(one * other));
      }),
    );
  });
});
