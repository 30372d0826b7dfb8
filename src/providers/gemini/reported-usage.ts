import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Usage that a response reports. */
export interface ReportedUsage {
  readonly usage: Usage;
  /** False if it does not count the completion yet: streams begin with usage of the prompt only. */
  readonly countsAnswer: boolean;
}

/**
 * Reads `usageMetadata` (https://ai.google.dev/api/generate-content#UsageMetadata) as the gateway's counts.
 * The prompt includes the input of Google's own tools and cached tokens. The completion includes thoughts.
 * Returns undefined if the counts are missing or impossible.
 */
export function reportedUsage(raw: unknown): ReportedUsage | undefined {
  if (!isFields(raw)) return undefined;
  const prompt = raw.promptTokenCount;
  const candidates = raw.candidatesTokenCount;
  if (!isCount(prompt) || prompt === 0) return undefined;
  if (candidates !== undefined && candidates !== null && !isCount(candidates)) return undefined;
  const promptTokens = prompt + countOr0(raw.toolUsePromptTokenCount);
  const thoughts = countOr0(raw.thoughtsTokenCount);
  const completionTokens = (candidates ?? 0) + thoughts;
  if (!isCount(promptTokens) || !isCount(completionTokens)) return undefined;
  const cachedPromptTokens = Math.min(countOr0(raw.cachedContentTokenCount), promptTokens);
  const usage: Usage = {
    promptTokens,
    cachedPromptTokens,
    cacheWriteTokens: 0,
    completionTokens,
    reasoningTokens: thoughts,
    estimated: false,
    ...mediaOfPrompt(raw, promptTokens, cachedPromptTokens),
    ...mediaOfAnswer(raw, completionTokens),
  };
  return { usage, countsAnswer: isCount(candidates) && candidates > 0 };
}

/**
 * Returns the prompt tokens of media. The prompt's list includes cached tokens, which the cache's list
 * repeats.
 */
function mediaOfPrompt(raw: Fields, prompt: number, cached: number): Partial<Usage> {
  const cacheTokens = modalities(raw.cacheTokensDetails);
  const promptMedia = modalities(raw.promptTokensDetails, raw.toolUsePromptTokensDetails);
  const cachedAudioPromptTokens = Math.min(cacheTokens.audio, cached);
  const cachedImagePromptTokens = Math.min(cacheTokens.image, cached - cachedAudioPromptTokens);
  const rest = prompt - cached;
  const audioPromptTokens = within(promptMedia.audio - cachedAudioPromptTokens, rest);
  const imagePromptTokens = within(
    promptMedia.image - cachedImagePromptTokens,
    rest - audioPromptTokens,
  );
  return withoutZeros({
    audioPromptTokens,
    imagePromptTokens,
    cachedAudioPromptTokens,
    cachedImagePromptTokens,
  });
}

function mediaOfAnswer(raw: Fields, completion: number): Partial<Usage> {
  const answerTokens = modalities(raw.candidatesTokensDetails);
  const audioCompletionTokens = within(answerTokens.audio, completion);
  const imageCompletionTokens = within(answerTokens.image, completion - audioCompletionTokens);
  return withoutZeros({ audioCompletionTokens, imageCompletionTokens });
}

/** Returns the tokens of each kind in lists of `{modality, tokenCount}`. Video has the price of images. */
function modalities(...lists: readonly unknown[]): { audio: number; image: number } {
  const sums = { audio: 0, image: 0 };
  for (const list of lists) {
    for (const entry of Array.isArray(list) ? list : []) {
      if (!isFields(entry)) continue;
      const count = countOr0(entry.tokenCount);
      if (entry.modality === "AUDIO") sums.audio += count;
      else if (entry.modality === "IMAGE" || entry.modality === "VIDEO") sums.image += count;
    }
  }
  return sums;
}

function within(count: number, max: number): number {
  return Math.max(0, Math.min(count, max));
}

function withoutZeros(counts: Partial<Usage>): Partial<Usage> {
  return Object.fromEntries(Object.entries(counts).filter(([, count]) => count !== 0));
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function countOr0(value: unknown): number {
  return isCount(value) ? value : 0;
}
