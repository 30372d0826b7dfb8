import type { ModelPrices, ModelTerms } from "../../../lib/catalogue-model.ts";
import { type ExactInteger, exact, plus, times } from "../../../lib/exact-integer.ts";
import { higher } from "../../../lib/money.ts";
import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import { estimatedUsage, NO_TOKENS, type Usage } from "../../../lib/usage.ts";
import type { Transcript } from "../../../providers/media.ts";
import type { CostBound } from "../../call/endpoint.ts";

/** What the cost of a request depends on. */
export interface SoundSize {
  /** As measured here. At least this is charged. */
  readonly durationMs: number;
  /** The longest that the provider may report for it. This is held. */
  readonly longestMs: number;
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
/** What a report may exceed the measured duration by. */
const ROUNDED_PART = 1.01;
const ROUNDED_MS = 1_000;

const NO_UNITS = { perUnitFemto: 0, units: 0, fixedTokens: 0, perUnitTokens: 0 };

function isByTime({ prices }: ModelTerms): boolean {
  return prices.secondFemto !== undefined;
}

/** The whole of the sound, by its price; or the tokens that it, the words, and a transcript of it can be. */
export function transcriptBound(size: SoundSize, terms: ModelTerms): CostBound {
  const { prices } = terms;
  if (isByTime(terms)) return { ...NO_UNITS, fixedFemto: boundByTime(size, prices) };
  const { longestMs, textBytes } = size;
  const ofSound = tokensOf(longestMs, MAX_TOKENS_A_SECOND);
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
  { longestMs, namesSpeakers }: SoundSize,
  { secondFemto = 0n, leastSoundFemto = 0n, speakersSecondFemto = 0n }: ModelPrices,
): ExactInteger {
  const seconds = BigInt(Math.ceil(longestMs / 1_000));
  const ofSpeakers = namesSpeakers === true ? seconds * speakersSecondFemto : 0n;
  return exact(higher(seconds * secondFemto, leastSoundFemto) + ofSpeakers);
}

/**
 * What a transcript is charged by. If time has a price, that is the measured duration, or the reported one if it is
 * longer. Else it is the reported tokens, or as many as the sound and the text usually are.
 */
export function transcriptUsage(
  reported: Pick<Transcript, "usage" | "reportedMs">,
  outputBytes: number,
  size: SoundSize,
  terms: ModelTerms,
): Usage {
  const { textBytes, namesSpeakers } = size;
  const durationMs = chargedMs(size, reported.reportedMs);
  if (isByTime(terms)) {
    return { ...NO_TOKENS, durationMs, ...(namesSpeakers && { speakersMs: durationMs }) };
  }
  if (reported.usage !== undefined) return { ...reported.usage, durationMs };
  const ofSound = tokensOf(durationMs, USUAL_TOKENS_A_SECOND);
  const estimated = estimatedUsage(ofSound + tokensOfBytes(textBytes), tokensOfBytes(outputBytes));
  return { ...estimated, audioPromptTokens: ofSound, durationMs };
}

/** Providers round up, and count what encoders add: a report of a little more counts as the measured duration. */
function chargedMs({ durationMs }: SoundSize, reportedMs = 0): number {
  return reportedMs > durationMs * ROUNDED_PART + ROUNDED_MS ? Math.ceil(reportedMs) : durationMs;
}

function tokensOf(durationMs: number, perSecond: number): number {
  return Math.ceil((durationMs * perSecond) / 1_000);
}
