import { SCOPES, type Scope } from "../../lib/api-key-record.ts";
import { type NanoUsd, nanoFromUsd } from "../../lib/money.ts";
import { parseIsoTime } from "../../lib/utc-time.ts";
import { UsageError } from "./command.ts";

/** The maximum length of a key's name in the API. */
const MAX_NAME_CHARACTERS = 256;
const MAX_DESCRIPTION_CHARACTERS = 500;
const MAX_PAGE = 1_000;
const DEFAULT_PAGE = 100;
const AMOUNT = /^-?\d{1,10}(\.\d{1,9})?$/;
const MAX_AMOUNT_NANO: NanoUsd = 1_000_000_000n * 1_000_000_000n;
const MAX_MODELS = 1_000;
const FEE = /^\d{1,3}(\.\d{1,2})?$/;
const WHOLE_NUMBER = /^(0|[1-9]\d{0,14})$/;

/** Reads a name of one line. Throws UsageError if it is invalid. */
export function readName(option: string, text: string): string {
  return readLine(option, text, MAX_NAME_CHARACTERS);
}

/** Reads a description of one line. Throws UsageError if it is invalid. */
export function readDescription(option: string, text: string): string {
  return readLine(option, text, MAX_DESCRIPTION_CHARACTERS);
}

function readLine(option: string, text: string, maxCharacters: number): string {
  const isLine = text.isWellFormed() && !/\p{Cc}/u.test(text) && text.trim() !== "";
  if (isLine && text.length <= maxCharacters) return text;
  throw new UsageError(
    `--${option} must be 1 to ${maxCharacters} characters, not only spaces, without control characters`,
  );
}

/** Returns the exact amount in nano-USD, which is not zero. Throws UsageError if it is invalid. */
export function readAmountNano(option: string, text: string): NanoUsd {
  const nano = AMOUNT.test(text) ? nanoFromUsd(text) : 0n;
  if (nano !== 0n && nano <= MAX_AMOUNT_NANO && nano >= -MAX_AMOUNT_NANO) return nano;
  throw new UsageError(
    `--${option} must be an amount in USD other than 0, from -1000000000 to 1000000000, with at most 9 decimals`,
  );
}

/** Returns the choice, or undefined if the option is absent. Throws UsageError if the choice is unknown. */
export function readChoice<Choice extends string>(
  option: string,
  text: string | undefined,
  choices: readonly Choice[],
): Choice | undefined {
  const choice = choices.find((candidate) => candidate === text);
  if (choice !== undefined || text === undefined) return choice;
  throw new UsageError(`--${option} must be one of ${choices.join(", ")}`);
}

/** Returns the scopes, or undefined if the option is absent. Throws UsageError if a scope is unknown or repeated. */
export function readScopes(option: string, text: string | undefined): Scope[] | undefined {
  if (text === undefined) return undefined;
  const names = text.split(",").map((name) => name.trim());
  const scopes = SCOPES.filter((scope) => names.includes(scope));
  if (scopes.length === names.length) return scopes;
  throw new UsageError(
    `--${option} must be a list of different scopes, separated by commas, from ${SCOPES.join(", ")}`,
  );
}

/**
 * Returns the exact amount in nano-USD, at least 0, or undefined if the option is absent. Throws UsageError if the
 * amount is invalid.
 */
export function readLimitNano(option: string, text: string | undefined): NanoUsd | undefined {
  if (text === undefined) return undefined;
  const nano = AMOUNT.test(text) ? nanoFromUsd(text) : -1n;
  if (nano >= 0n && nano <= MAX_AMOUNT_NANO) return nano;
  throw new UsageError(
    `--${option} must be an amount in USD from 0 to 1000000000, with at most 9 decimals`,
  );
}

/**
 * Returns different names of models, or undefined if the option is absent. Throws UsageError if a name is invalid or
 * repeated, or there are too many.
 */
export function readModels(option: string, text: string | undefined): string[] | undefined {
  if (text === undefined) return undefined;
  const names = text.split(",").map((name) => readLine(option, name.trim(), MAX_NAME_CHARACTERS));
  if (new Set(names).size === names.length && names.length <= MAX_MODELS) return names;
  throw new UsageError(
    `--${option} must be at most ${MAX_MODELS} different models, separated by commas`,
  );
}

/**
 * Returns milliseconds since the epoch, or undefined if the option is absent. Throws UsageError if the time is invalid
 * or not in the future.
 */
export function readFutureTime(
  option: string,
  text: string | undefined,
  nowMs: number,
): number | undefined {
  if (text === undefined) return undefined;
  const time = parseIsoTime(text);
  if (time !== undefined && time.ms > nowMs) return time.ms;
  throw new UsageError(`--${option} must be an ISO 8601 time in the future`);
}

/** The word that restores the default of an option. */
export const DEFAULT_WORD = "default";

/** Returns null for `default`, and undefined if the option is absent. Throws the errors of `read`. */
export function readOverride<Value>(
  text: string | undefined,
  read: (text: string) => Value,
): Value | null | undefined {
  if (text === undefined) return undefined;
  return text === DEFAULT_WORD ? null : read(text);
}

/** Returns a fee in hundredths of a percent. Throws UsageError if it is invalid or above 100 %. */
export function readFeeBasisPoints(option: string, text: string): number {
  const basisPoints = FEE.test(text) ? Math.round(Number(text) * 100) : Number.NaN;
  if (basisPoints <= 10_000) return basisPoints;
  throw new UsageError(`--${option} must be from 0 to 100, with at most 2 decimals`);
}

/** Reads the limit and the offset of a list. Throws UsageError if one of them is invalid. */
export function readPage(options: Readonly<Record<string, string | undefined>>): {
  limit: number;
  offset: number;
} {
  const limit = readWholeNumber("limit", options.limit ?? String(DEFAULT_PAGE), 1, MAX_PAGE);
  const offset = readWholeNumber("offset", options.offset ?? "0", 0, Number.MAX_SAFE_INTEGER);
  return { limit, offset };
}

export const PAGE_OPTIONS = {
  limit: {
    value: "N",
    meaning: `number of entries, at most ${MAX_PAGE}; default: ${DEFAULT_PAGE}`,
  },
  offset: { value: "N", meaning: "number of entries to skip" },
} as const;

export function readWholeNumber(
  option: string,
  text: string,
  minimum: number,
  maximum: number,
): number {
  const value = WHOLE_NUMBER.test(text) ? Number(text) : Number.NaN;
  if (value >= minimum && value <= maximum) return value;
  throw new UsageError(`--${option} must be a whole number from ${minimum} to ${maximum}`);
}
