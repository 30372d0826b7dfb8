import { patternExample } from "./pattern-example.ts";
import { meetsNumber } from "./schema-check.ts";
import { type Keywords, numberOf, numericRange } from "./schema-keywords.ts";

/** The longest string made up for one schema, in characters. */
const MAX_EXAMPLE_CHARACTERS = 10_000;
/** Steps from a bound that are tried, for a number that also has a divisor. */
const MAX_NUMBER_TRIES = 64;

const FORMAT_EXAMPLES: ReadonlyMap<unknown, string> = new Map([
  ["date-time", "2026-01-01T12:00:00Z"],
  ["date", "2026-01-01"],
  ["time", "12:00:00Z"],
  ["duration", "P1D"],
  ["email", "user@example.com"],
  ["idn-email", "user@example.com"],
  ["hostname", "example.com"],
  ["idn-hostname", "example.com"],
  ["ipv4", "192.0.2.1"],
  ["ipv6", "2001:db8::1"],
  ["uri", "https://example.com/"],
  ["uri-reference", "https://example.com/"],
  ["iri", "https://example.com/"],
  ["iri-reference", "https://example.com/"],
  ["uri-template", "https://example.com/{id}"],
  ["url", "https://example.com/"],
  ["uuid", "00000000-0000-4000-8000-000000000000"],
  ["json-pointer", "/example"],
  ["relative-json-pointer", "0/example"],
  ["regex", "^example$"],
  ["byte", "ZXhhbXBsZQ=="],
]);

/** A string of the length, format or pattern asked for; a different `salt` gives a different one. */
export function stringExample(keywords: Keywords, salt: number): string | undefined {
  const minLength = Math.max(0, numberOf(keywords.minLength) ?? 0);
  const maxLength = numberOf(keywords.maxLength) ?? Number.POSITIVE_INFINITY;
  if (minLength > maxLength) return undefined;
  const wanted = Math.min(minLength, MAX_EXAMPLE_CHARACTERS);
  if (typeof keywords.pattern === "string") {
    const example = patternExample(keywords.pattern, wanted, MAX_EXAMPLE_CHARACTERS);
    if (example !== undefined) return example;
  }
  const formatted = FORMAT_EXAMPLES.get(keywords.format);
  if (formatted !== undefined && formatted.length >= minLength && formatted.length <= maxLength) {
    return formatted;
  }
  const plain = salt === 0 ? "example" : `${salt}-example`;
  const length = Math.min(maxLength, Math.max(wanted, plain.length));
  return plain.repeat(Math.ceil(length / plain.length)).slice(0, length);
}

/** A number in the range and of the divisor asked for; a different `salt` gives a different one. */
export function numberExample(
  keywords: Keywords,
  isInteger: boolean,
  salt: number,
): number | undefined {
  const divisor = numberOf(keywords.multipleOf);
  const step = stepOf(divisor, isInteger);
  let left = salt;
  for (const candidate of numberCandidates(keywords, step)) {
    if (isInteger && !Number.isInteger(candidate)) continue;
    if (meetsNumber(candidate, keywords) && left-- === 0) return candidate;
  }
  return undefined;
}

/** 1 or 0 where they will do, else numbers from the lower bound up, from the upper bound down, between. */
function* numberCandidates(keywords: Keywords, step: number): Generator<number> {
  const { low, high } = numericRange(keywords);
  const hasLow = low !== Number.NEGATIVE_INFINITY;
  const hasHigh = high !== Number.POSITIVE_INFINITY;
  if (!hasLow || low <= 1) {
    yield* [1, 0, step, 1.5, -1];
    for (let index = 2; index < MAX_NUMBER_TRIES; index++) yield index * step;
  }
  if (hasLow) {
    const first = Math.floor(low / step);
    for (let index = 0; index < MAX_NUMBER_TRIES; index++) yield (first + index) * step;
  }
  if (hasHigh) {
    const first = Math.ceil(high / step);
    for (let index = 0; index < MAX_NUMBER_TRIES; index++) yield (first - index) * step;
  }
  if (hasLow && hasHigh) {
    yield* [low, high];
    for (let parts = 2; parts < MAX_NUMBER_TRIES; parts++) yield low + (high - low) / parts;
  }
}

function stepOf(divisor: number | undefined, isInteger: boolean): number {
  if (divisor === undefined || divisor <= 0) return 1;
  // The first whole multiple of a fraction such as 0.5 or 2.5 is found among its first hundred.
  for (let times = 1; isInteger && times <= 100; times++) {
    if (Number.isInteger(divisor * times)) return divisor * times;
  }
  return divisor;
}
