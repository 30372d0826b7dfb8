import type { ModelPrices, ModelTerms } from "../../../lib/catalogue-model.ts";
import { type ExactInteger, exact, plus, times } from "../../../lib/exact-integer.ts";
import { higher } from "../../../lib/money.ts";
import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import { estimatedUsage, NO_TOKENS, type Usage } from "../../../lib/usage.ts";
import type { Transcript } from "../../../providers/media.ts";
import { type CostBound, fixedBound } from "../../call/endpoint.ts";

/** The values that determine the cost of a request. */
export interface SoundSize {
  /** Duration measured by the gateway. The charge covers at least this duration. */
  readonly durationMs: number;
  /** The longest duration that the provider can report. The hold covers it. */
  readonly longestMs: number;
  /** UTF-8 bytes of the prompt and other texts that the model reads. Every token has at least one byte. */
  readonly textBytes: number;
  /** True if the request distinguishes speakers, which some providers charge separately. */
  readonly namesSpeakers?: boolean;
}

/** The highest rate that a provider states: Google's. */
const MAX_TOKENS_A_SECOND = 32;
/** The rate of OpenAI's models: one token for a tenth of a second. */
const USUAL_TOKENS_A_SECOND = 10;
/** Tokens of the instruction to transcribe, added to the audio. */
const TOKENS_AROUND_SOUND = 1_024;
const SPARE_OUTPUT_TOKENS = 1_024;
/** Factor by which a reported duration can exceed the measured one and still count as equal. */
const TOLERATED_FACTOR = 1.01;
const TOLERATED_MS = 1_000;

function isByTime({ prices }: ModelTerms): boolean {
  return prices.secondFemto !== undefined;
}

/**
 * Returns an upper bound of the cost. If time has a price, it is the price of the longest duration. Otherwise
 * it covers the most tokens that the audio, the texts and the transcript can have.
 */
export function transcriptBound(size: SoundSize, terms: ModelTerms): CostBound {
  const { prices } = terms;
  if (isByTime(terms)) return fixedBound(boundByTime(size, prices), 0);
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
  return fixedBound(fixedFemto, inputTokens + outputTokens);
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
 * Returns the usage of a transcript. If time has a price, it is the measured duration, or the reported one if
 * that is longer. Otherwise it is the reported tokens, or an estimate from the audio and the text.
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

/**
 * Returns the duration to charge in milliseconds. Providers round up and count samples that encoders add, so
 * a report that is slightly longer counts as the measured duration.
 */
function chargedMs({ durationMs }: SoundSize, reportedMs = 0): number {
  return reportedMs > durationMs * TOLERATED_FACTOR + TOLERATED_MS
    ? Math.ceil(reportedMs)
    : durationMs;
}

function tokensOf(durationMs: number, perSecond: number): number {
  return Math.ceil((durationMs * perSecond) / 1_000);
}
