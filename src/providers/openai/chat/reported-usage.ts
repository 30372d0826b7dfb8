import { isFields } from "../../../lib/json.ts";
import type { Usage } from "../../../lib/usage.ts";
import { mediaTokens } from "../../streamed-answer.ts";
import { CACHE_WRITE_NAMES, CACHED_TOKENS_NAMES, GROQS_MEMBER } from "../openai-variants.ts";

/**
 * Returns the usage in a completion or a chunk: its own, or Groq's in `x_groq`, or Moonshot's in the choice. The last
 * is that of the whole answer only if there is one choice (`oneChoice`). Returns undefined if there is none, or an
 * impossible one.
 */
export function reportedUsage(
  body: Readonly<Record<string, unknown>>,
  oneChoice: boolean,
): Usage | undefined {
  const { usage, [GROQS_MEMBER]: groq, choices } = body;
  const usageOfBody = readUsage(usage) ?? readUsage(isFields(groq) ? groq.usage : undefined);
  if (usageOfBody !== undefined || !oneChoice || !Array.isArray(choices)) return usageOfBody;
  const choice: unknown = choices[0];
  return isFields(choice) ? readUsage(choice.usage) : undefined;
}

/**
 * Combines the usages of two chunks. The later one counts, except that its zeros do not replace counts of the earlier
 * one. Some servers report the prompt at the start and the answer at the end.
 */
export function mergeUsage(earlier: Usage | undefined, later: Usage): Usage {
  if (earlier === undefined) return later;
  if (later.promptTokens === 0) {
    const { promptTokens, cachedPromptTokens, cacheWriteTokens } = earlier;
    return { ...later, promptTokens, cachedPromptTokens, cacheWriteTokens };
  }
  if (later.completionTokens > 0) return later;
  const { completionTokens, reasoningTokens } = earlier;
  return { ...later, completionTokens, reasoningTokens };
}

/**
 * Parses the usage object of a provider with OpenAI's API. Returns undefined if there is none, or an impossible one
 * (negative, fractional, beyond integers). The gateway then counts the tokens itself.
 */
function readUsage(raw: unknown): Usage | undefined {
  if (typeof raw !== "object" || raw === null) return undefined;
  const usage = raw as Record<string, unknown>;
  const total = usage.total_tokens;
  const prompt = usage.prompt_tokens;
  const completion = usage.completion_tokens ?? difference(total, prompt);
  if (!isCount(prompt) || !isCount(completion)) return undefined;
  // No prompt is empty. Some servers send zeros for values that they have not counted.
  if (prompt === 0 && completion === 0) return undefined;
  const ofPrompt = usage.prompt_tokens_details as Record<string, unknown> | null | undefined;
  const ofCompletion = usage.completion_tokens_details as
    | Record<string, unknown>
    | null
    | undefined;
  const cached = countOr0(ofPrompt?.cached_tokens ?? firstOf(usage, CACHED_TOKENS_NAMES));
  const written = countOr0(ofPrompt && firstOf(ofPrompt, CACHE_WRITE_NAMES));
  const reasoning = countOr0(ofCompletion?.reasoning_tokens);
  const additional = additionalTokens(total, prompt + completion, cached + written, reasoning);
  const promptTokens = prompt + additional.cache;
  const completionTokens = completion + additional.reasoning;
  const cachedPromptTokens = Math.min(cached, promptTokens);
  // OpenRouter's member
  const images = Math.min(countOr0(ofCompletion?.image_tokens), completionTokens);
  const sound = Math.min(countOr0(ofCompletion?.audio_tokens), completionTokens - images);
  const audioPrompt = Math.min(countOr0(ofPrompt?.audio_tokens), promptTokens - cachedPromptTokens);
  return {
    promptTokens,
    cachedPromptTokens,
    cacheWriteTokens: Math.min(written, promptTokens - cachedPromptTokens),
    completionTokens,
    reasoningTokens: Math.min(additional.reasoning || reasoning, completionTokens),
    estimated: false,
    ...(audioPrompt > 0 && { audioPromptTokens: audioPrompt }),
    ...mediaTokens(images, sound),
  };
}

const NO_ADDITIONAL_TOKENS = { cache: 0, reasoning: 0 } as const;

/**
 * Returns the tokens that a provider bills in addition to prompt and completion, as the difference to its total. They
 * are reasoning tokens, which xAI also reports in the details and Gemini only in the total, or cache tokens.
 */
function additionalTokens(total: unknown, parts: number, cache: number, reasoning: number) {
  const beyond = isCount(total) ? total - parts : 0;
  if (beyond <= 0) return NO_ADDITIONAL_TOKENS;
  if (beyond === reasoning) return { cache: 0, reasoning };
  if (reasoning > 0) return NO_ADDITIONAL_TOKENS;
  return beyond === cache ? { cache, reasoning: 0 } : { cache: 0, reasoning: beyond };
}

function difference(total: unknown, promptTokens: unknown): number | undefined {
  return isCount(total) && isCount(promptTokens) ? total - promptTokens : undefined;
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function countOr0(value: unknown): number {
  return isCount(value) ? value : 0;
}

function firstOf(fields: Readonly<Record<string, unknown>>, names: readonly string[]): unknown {
  for (const name of names)
    if (fields[name] !== undefined && fields[name] !== null) return fields[name];
  return undefined;
}
