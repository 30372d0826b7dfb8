/**
 * Money is an integer of nano-USD (10⁻⁹ USD) everywhere inside; floats exist only in JSON at the edge.
 * Prices of single tokens are finer than that (3.75e-8 USD is 37.5 nano-USD), so they are integers of
 * femto-USD (10⁻¹⁵ USD) and a cost is rounded once, at its end.
 */
export type NanoUsd = bigint;
export type FemtoUsd = bigint;

const NANO_PER_USD = 1_000_000_000n;
const FEMTO_PER_NANO = 1_000_000n;
const BASIS_POINTS = 10_000n;
const DECIMAL = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i;

/**
 * Reads a decimal number or its text exactly as an integer of 10^-decimals units.
 * Digits beyond `decimals` are rounded half up (away from zero). Throws RangeError when it is no finite decimal.
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

/** USD, as a JSON number or decimal text, in nano-USD. Throws RangeError when it is no finite decimal. */
export function nanoFromUsd(usd: number | string): NanoUsd {
  return scaledInteger(usd, 9);
}

/** USD for a single token, image, character or second, in femto-USD. */
export function femtoFromUsd(usd: number | string): FemtoUsd {
  return scaledInteger(usd, 15);
}

/** True when the JSON number has at most `decimals` decimals, as budgets and top-ups demand. */
export function hasAtMostDecimals(value: number, decimals: number): boolean {
  const match = DECIMAL.exec(String(value));
  if (!match) return false;
  const [, , , fraction = "", exponent = "0"] = match;
  return fraction.length - Number(exponent) <= decimals;
}

/** Nano-USD as a plain decimal without exponent: 0.000012, -3.5, 10. For headers. */
export function usdText(nano: NanoUsd): string {
  const negative = nano < 0n;
  const absolute = negative ? -nano : nano;
  const whole = absolute / NANO_PER_USD;
  const fraction = (absolute % NANO_PER_USD).toString().padStart(9, "0").replace(/0+$/, "");
  return `${negative ? "-" : ""}${whole}${fraction === "" ? "" : `.${fraction}`}`;
}

/** Nano-USD as the JSON number that stands nearest to it. */
export function usdNumber(nano: NanoUsd): number {
  // A division of integers that are exact as floats is rounded once, to the nearest.
  return -MAX_EXACT < nano && nano < MAX_EXACT ? Number(nano) / 1e9 : Number(usdText(nano));
}

const MAX_EXACT = BigInt(Number.MAX_SAFE_INTEGER);

/** Femto-USD of provider cost plus the plan's fee, rounded half up to a nano-USD once. */
export function chargeNanoUsd(providerCostFemto: FemtoUsd, feeBasisPoints: bigint): NanoUsd {
  const divisor = BASIS_POINTS * FEMTO_PER_NANO;
  return (providerCostFemto * (BASIS_POINTS + feeBasisPoints) + divisor / 2n) / divisor;
}

/** The same rounded up, for holds: a charge is never larger than its hold. */
export function holdNanoUsd(providerCostFemto: FemtoUsd, feeBasisPoints: bigint): NanoUsd {
  const divisor = BASIS_POINTS * FEMTO_PER_NANO;
  return (providerCostFemto * (BASIS_POINTS + feeBasisPoints) + divisor - 1n) / divisor;
}
