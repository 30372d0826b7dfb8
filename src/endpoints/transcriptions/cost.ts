import type { CostBound } from "../../calls/endpoint.ts";
import type { ModelPrices, ModelTerms } from "../../lib/catalogue-model.ts";
import { type ExactInteger, exact, plus, times } from "../../lib/exact-integer.ts";
import { higher } from "../../lib/money.ts";
import { tokensOfBytes } from "../../lib/token-estimate.ts";
import { estimatedUsage, NO_TOKENS, type Usage } from "../../lib/usage.ts";

/** What the cost of a request depends on. */
export interface SoundSize {
  /** As measured here. */
  readonly durationMs: number;
  /** UTF-8 bytes of the prompt and the other words that a model reads: no token is shorter than one. */
  readonly textBytes: number;
  /** Its speakers are to be distinguished, which some providers charge for apart. */
  readonly namesSpeakers?: boolean;
}

/** The most that any provider states: Google's. */
const MAX_TOKENS_A_SECOND = 32;
/** OpenAI's models make one of a tenth of a second. */
const USUAL_TOKENS_A_SECOND = 10;
/** Around the sound: what tells the model to write it down. */
const TOKENS_AROUND_SOUND = 1_024;
const SPARE_OUTPUT_TOKENS = 1_024;

const NO_UNITS = { perUnitFemto: 0, units: 0, fixedTokens: 0, perUnitTokens: 0 };

export function isByTime({ prices }: ModelTerms): boolean {
  return prices.secondFemto !== undefined;
}

/** The whole of the sound, by its price; or the tokens that it, the words, and a transcript of it can be. */
export function transcriptBound(size: SoundSize, terms: ModelTerms): CostBound {
  const { prices } = terms;
  if (isByTime(terms)) return { ...NO_UNITS, fixedFemto: boundByTime(size, prices) };
  const { durationMs, textBytes } = size;
  const ofSound = tokensOf(durationMs, MAX_TOKENS_A_SECOND);
  const { inputTokenFemto, outputTokenFemto, longPrompt = prices } = prices;
  const input = higher(
    higher(inputTokenFemto, prices.audioInputTokenFemto ?? 0n),
    higher(longPrompt.inputTokenFemto, longPrompt.audioInputTokenFemto ?? 0n),
  );
  const output = higher(outputTokenFemto, longPrompt.outputTokenFemto);
  const inputTokens = ofSound + textBytes + TOKENS_AROUND_SOUND;
  const outputTokens = ofSound + SPARE_OUTPUT_TOKENS;
  const fixedFemto = plus(
    times(inputTokens, exact(input)),
    times(outputTokens, exact(higher(output, prices.reasoningTokenFemto ?? 0n))),
  );
  return { ...NO_UNITS, fixedFemto, fixedTokens: inputTokens + outputTokens };
}

function boundByTime(
  { durationMs, namesSpeakers }: SoundSize,
  { secondFemto = 0n, leastSoundFemto = 0n, speakersSecondFemto = 0n }: ModelPrices,
): ExactInteger {
  const seconds = BigInt(Math.ceil(durationMs / 1_000));
  const ofSpeakers = namesSpeakers === true ? seconds * speakersSecondFemto : 0n;
  return exact(higher(seconds * secondFemto, leastSoundFemto) + ofSpeakers);
}

/**
 * What a transcript is charged by: the whole duration where that has a price, whatever the provider reports,
 * and else the reported tokens, or as many as the sound and the text usually are.
 */
export function transcriptUsage(
  reported: Usage | undefined,
  outputBytes: number,
  { durationMs, textBytes, namesSpeakers }: SoundSize,
  terms: ModelTerms,
): Usage {
  if (isByTime(terms)) {
    return { ...NO_TOKENS, durationMs, ...(namesSpeakers && { speakersMs: durationMs }) };
  }
  if (reported !== undefined) return { ...reported, durationMs };
  const ofSound = tokensOf(durationMs, USUAL_TOKENS_A_SECOND);
  const estimated = estimatedUsage(ofSound + tokensOfBytes(textBytes), tokensOfBytes(outputBytes));
  return { ...estimated, audioPromptTokens: ofSound, durationMs };
}

function tokensOf(durationMs: number, perSecond: number): number {
  return Math.ceil((durationMs * perSecond) / 1_000);
}
