import type { ModelPrices, ModelTerms } from "../../../lib/catalogue-model.ts";
import { exact, plus, times } from "../../../lib/exact-integer.ts";
import { type FemtoUsd, higher } from "../../../lib/money.ts";
import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import { estimatedUsage, NO_TOKENS, type Usage } from "../../../lib/usage.ts";
import type { CostBound } from "../../call/endpoint.ts";
import type { SoundLength } from "./sound-length.ts";
import { TOKENS_A_SECOND, tokensOfSound } from "./speech-answer.ts";

/** The values that determine the cost of a request. */
export interface SpeechSize {
  /** Unicode code points of the input, which providers count as characters, including spaces and line ends. */
  readonly characters: number;
  /** UTF-8 bytes of the input and the instructions. Every token has at least one byte. */
  readonly bytes: number;
  /** The longest playing time of the speech. */
  readonly maxSeconds: number;
}

/** Tokens of voice names and of the instruction to read the text. */
const TOKENS_AROUND_INPUT = 64;
const MAX_SECONDS_A_CHARACTER = 1;
const SPARE_SECONDS = 10;

export function speechSize(
  input: string,
  instructions: string | undefined,
  speed: number,
): SpeechSize {
  const characters = codePoints(input);
  return {
    characters,
    bytes: Buffer.byteLength(input) + Buffer.byteLength(instructions ?? ""),
    // A higher speed does not lower the bound, because some models ignore the speed.
    maxSeconds: (characters * MAX_SECONDS_A_CHARACTER) / Math.min(speed, 1) + SPARE_SECONDS,
  };
}

function codePoints(text: string): number {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** Returns true if tokens of the model have a price. */
export function isByToken({ prices }: ModelTerms): boolean {
  return prices.inputTokenFemto > 0n || soundTokenFemto(prices) > 0n;
}

/** Returns true if the charge depends on the length of the speech. */
export function growsWithSound({ prices }: ModelTerms): boolean {
  return soundTokenFemto(prices) > 0n || prices.secondFemto !== undefined;
}

function soundTokenFemto({ outputTokenFemto, audioOutputTokenFemto }: ModelPrices): FemtoUsd {
  return higher(outputTokenFemto, audioOutputTokenFemto ?? 0n);
}

/**
 * Returns an upper bound of the cost: characters by their price, and tokens of the input and of the longest
 * audio.
 */
export function speechBound(size: SpeechSize, terms: ModelTerms): CostBound {
  const { prices, contextLength, maxOutputTokens } = terms;
  const inputTokens = Math.min(size.bytes + TOKENS_AROUND_INPUT, contextLength);
  const maxMs = Math.ceil(size.maxSeconds * 1_000);
  const soundTokens = Math.ceil(size.maxSeconds * TOKENS_A_SECOND);
  const perUnit = soundTokenFemto(prices);
  const ofText = plus(
    times(size.characters, exact(prices.characterFemto ?? 0n)),
    times(inputTokens, exact(prices.inputTokenFemto)),
  );
  const ofTime = times(Math.ceil(maxMs / 1_000), exact(prices.secondFemto ?? 0n));
  return {
    fixedFemto: plus(ofText, ofTime),
    perUnitFemto: exact(perUnit),
    units: perUnit === 0n ? 0 : Math.min(soundTokens, maxOutputTokens || soundTokens),
    fixedTokens: isByToken(terms) ? inputTokens : 0,
    perUnitTokens: 1,
  };
}

/**
 * Returns the usage of speech. All characters of the input count from the first byte of audio on, because
 * providers bill them then. Tokens are as reported, or estimated from the audio so far.
 */
export function speechUsage(
  reported: Usage | undefined,
  sound: SoundLength,
  { characters, bytes }: SpeechSize,
  terms: ModelTerms,
): Usage {
  const usage = reported ?? (isByToken(terms) ? estimatedTokens(bytes, sound) : NO_TOKENS);
  if (terms.prices.secondFemto === undefined) return { ...usage, characters };
  return { ...usage, characters, durationMs: sound.ms, estimated: true };
}

function estimatedTokens(bytes: number, sound: SoundLength): Usage {
  const completionTokens = tokensOfSound(sound);
  const usage = estimatedUsage(tokensOfBytes(bytes), completionTokens);
  return { ...usage, audioCompletionTokens: completionTokens };
}
