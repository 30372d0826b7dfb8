import type { ExactInteger } from "./exact-integer.ts";

/**
 * Money is an integer of nano-USD (10⁻⁹ USD) inside the gateway; floats exist only in JSON. Prices of single
 * tokens need more precision (3.75e-8 USD is 37.5 nano-USD), so they are integers of femto-USD (10⁻¹⁵ USD), and a
 * cost is rounded once, at the end.
 */
export type NanoUsd = bigint;
export type FemtoUsd = bigint;

const NANO_PER_USD = 1_000_000_000;
const NANO_DIGITS = 9;
export const FEMTO_PER_NANO = 1_000_000n;
/** A share of 1 in basis points. */
export const BASIS_POINTS = 10_000n;
/** The divisors as numbers, for amounts that stay within safe integers. */
const PLAIN_FEMTO_PER_NANO = Number(FEMTO_PER_NANO);
const PLAIN_BASIS_POINTS = Number(BASIS_POINTS);
const DIVISOR = PLAIN_BASIS_POINTS * PLAIN_FEMTO_PER_NANO;
/** Largest cost with its fee, in basis points of the cost, that is calculated with numbers: ten times the cost. */
const MAX_PLAIN_FACTOR = 100_000;
/** Up to a million USD, the float nearest to an amount, rounded to nine decimals, equals the amount. */
const MAX_FIXED_NANO = 1_000_000 * NANO_PER_USD;
const ZERO = 48;
const POINT = 46;
const DECIMAL = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i;

/**
 * Reads a decimal number or its text exactly as an integer of 10^-decimals units. Rounds further digits half up
 * (away from zero). Throws RangeError if the value is not a finite decimal.
 */
function scaledInteger(value: number | string, decimals: number): bigint {
  const match = DECIMAL.exec(String(value));
  if (!match) throw new RangeError(`not a decimal number: ${String(value)}`);
  const [, sign, whole = "0", fraction = "", exponent = "0"] = match;
  const digits = whole + fraction;
  const shift = Number(exponent) + decimals - fraction.length;
  if (Math.abs(shift) > 400) throw new RangeError(`out of range: ${String(value)}`);
  let scaled: bigint;
  if (shift >= 0) {
    scaled = BigInt(digits) * 10n ** BigInt(shift);
  } else {
    const divisor = 10n ** BigInt(-shift);
    scaled = (BigInt(digits) + divisor / 2n) / divisor;
  }
  return sign === "-" ? -scaled : scaled;
}

/**
 * Converts USD, as a JSON number or decimal text, to nano-USD. Throws RangeError if it is not a finite decimal.
 */
export function nanoFromUsd(usd: number | string): NanoUsd {
  return scaledInteger(usd, 9);
}

/** Converts a price in USD for a single token, image, character or second to femto-USD. */
export function femtoFromUsd(usd: number | string): FemtoUsd {
  return scaledInteger(usd, 15);
}

/** Returns true if the JSON number has at most `decimals` decimals, as budgets and top-ups require. */
export function hasAtMostDecimals(value: number, decimals: number): boolean {
  const match = DECIMAL.exec(String(value));
  if (!match) return false;
  const [, , , fraction = "", exponent = "0"] = match;
  return fraction.length - Number(exponent) <= decimals;
}

/** Returns nano-USD as a plain decimal in USD without exponent, for headers: 0.000012, -3.5, 10. */
export function usdText(nano: NanoUsd): string {
  const number = Number(nano);
  const isSmall = -MAX_FIXED_NANO <= number && number <= MAX_FIXED_NANO;
  const text = isSmall ? (number / NANO_PER_USD).toFixed(NANO_DIGITS) : fixedText(nano);
  let end = text.length;
  while (text.charCodeAt(end - 1) === ZERO) end--;
  return text.slice(0, text.charCodeAt(end - 1) === POINT ? end - 1 : end);
}

/** Returns the amount in USD with all nine decimals. */
function fixedText(nano: NanoUsd): string {
  const digits = (nano < 0n ? -nano : nano).toString().padStart(NANO_DIGITS + 1, "0");
  const whole = digits.slice(0, -NANO_DIGITS);
  return `${nano < 0n ? "-" : ""}${whole}.${digits.slice(-NANO_DIGITS)}`;
}

/** Returns nano-USD in USD as the nearest JSON number. */
export function usdNumber(nano: NanoUsd): number {
  const exact = Number(nano);
  // A division of two integers that are exact as floats is rounded once, to the nearest.
  return Number.isSafeInteger(exact) ? exact / NANO_PER_USD : Number(usdText(nano));
}

/** Returns the provider cost plus the plan's fee, rounded half up to a nano-USD once. */
export function chargeNanoUsd(providerCostFemto: ExactInteger, feeBasisPoints: bigint): NanoUsd {
  return nanoWithFee(providerCostFemto, feeBasisPoints, DIVISOR / 2);
}

/**
 * Returns the provider cost plus the plan's fee, rounded up, for holds: a charge is never larger than its hold.
 */
export function holdNanoUsd(providerCostFemto: ExactInteger, feeBasisPoints: bigint): NanoUsd {
  return nanoWithFee(providerCostFemto, feeBasisPoints, DIVISOR - 1);
}

/**
 * Returns the cost with the fee in whole nano-USD. `rounding` is added before the division, in ten-thousandths of
 * a femto-USD.
 */
function nanoWithFee(costFemto: ExactInteger, feeBasisPoints: bigint, rounding: number): NanoUsd {
  const factor = PLAIN_BASIS_POINTS + Number(feeBasisPoints);
  if (
    typeof costFemto === "number" &&
    costFemto >= 0 &&
    factor >= 0 &&
    factor <= MAX_PLAIN_FACTOR
  ) {
    return BigInt(plainNanoWithFee(costFemto, factor, rounding));
  }
  const scaled = BigInt(costFemto) * (BASIS_POINTS + feeBasisPoints);
  return (scaled + BigInt(rounding)) / BigInt(DIVISOR);
}

/**
 * Calculates with numbers. The product would not be safe, so it is divided piece by piece: no piece is above
 * 9·10¹⁴, and each division but the last is of a multiple of its divisor.
 */
function plainNanoWithFee(costFemto: number, factor: number, rounding: number): number {
  const restFemto = costFemto % PLAIN_FEMTO_PER_NANO;
  const scaledNano = ((costFemto - restFemto) / PLAIN_FEMTO_PER_NANO) * factor;
  const restNano = scaledNano % PLAIN_BASIS_POINTS;
  const rest = restNano * PLAIN_FEMTO_PER_NANO + restFemto * factor + rounding;
  return (scaledNano - restNano) / PLAIN_BASIS_POINTS + Math.floor(rest / DIVISOR);
}

export function higher(left: FemtoUsd, right: FemtoUsd): FemtoUsd {
  return left > right ? left : right;
}
