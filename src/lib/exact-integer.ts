/**
 * An integer that is exact however large: a number while that is safe, because numbers are reckoned with in
 * an instruction and take no memory of their own, and a bigint beyond.
 */
export type ExactInteger = number | bigint;

/** The number where it is safe. */
export function exact(value: bigint): ExactInteger {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

/** Throws RangeError where one of them is a number and no integer; so does `times`. */
export function plus(one: ExactInteger, other: ExactInteger): ExactInteger {
  if (isSafe(one) && isSafe(other)) {
    const sum = one + other;
    // Rounding never brings back what lies beyond: a sum that is safe is the exact one.
    if (Number.isSafeInteger(sum)) return sum;
  }
  return exact(BigInt(one) + BigInt(other));
}

/** Whatever it throws, `plus` throws too. */
export function minus(one: ExactInteger, other: ExactInteger): ExactInteger {
  return other === 0 ? one : plus(one, times(other, -1));
}

export function times(one: ExactInteger, other: ExactInteger): ExactInteger {
  if (isSafe(one) && isSafe(other)) {
    const product = one * other;
    // There is one zero alone among integers.
    if (Number.isSafeInteger(product)) return product === 0 ? 0 : product;
  }
  return exact(BigInt(one) * BigInt(other));
}

function isSafe(value: ExactInteger): value is number {
  return Number.isSafeInteger(value);
}
