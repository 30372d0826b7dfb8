/**
 * An exact integer of any size: a number if that is safe, otherwise a bigint. Numbers are used because arithmetic
 * with them is a single instruction and they need no separate memory.
 */
export type ExactInteger = number | bigint;

/** Returns the value as a number if that is safe. */
export function exact(value: bigint): ExactInteger {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

/** Returns the exact sum. Throws RangeError if an argument is a number but not an integer; so does `times`. */
export function plus(left: ExactInteger, right: ExactInteger): ExactInteger {
  if (isSafe(left) && isSafe(right)) {
    const sum = left + right;
    // Rounding never turns an unsafe sum into a safe one, so a safe sum is exact.
    if (Number.isSafeInteger(sum)) return sum;
  }
  return exact(BigInt(left) + BigInt(right));
}

/** Returns the exact difference. Throws like `plus`. */
export function minus(left: ExactInteger, right: ExactInteger): ExactInteger {
  return right === 0 ? left : plus(left, times(right, -1));
}

export function times(left: ExactInteger, right: ExactInteger): ExactInteger {
  if (isSafe(left) && isSafe(right)) {
    const product = left * right;
    // The integers have no negative zero.
    if (Number.isSafeInteger(product)) return product === 0 ? 0 : product;
  }
  return exact(BigInt(left) * BigInt(right));
}

function isSafe(value: ExactInteger): value is number {
  return Number.isSafeInteger(value);
}
