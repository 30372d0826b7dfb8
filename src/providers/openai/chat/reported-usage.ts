import { isFields } from "../../../lib/json.ts";
import type { Usage } from "../../../lib/usage.ts";
import { mediaTokens } from "../../streamed-answer.ts";
import { CACHE_WRITE_NAMES, CACHED_TOKENS_NAMES, GROQS_MEMBER } from "../wire-dialects.ts";

/**
 * The usage that a completion or a chunk of one tells: its own, or Groq's in `x_groq`, or Moonshot's in the
 * choice, which is that of the answer where that has `oneChoice`. Undefined where it tells none that can be
 * true.
 */
export function reportedUsage(
  body: Readonly<Record<string, unknown>>,
  oneChoice: boolean,
): Usage | undefined {
  const { usage, [GROQS_MEMBER]: groq, choices } = body;
  const told = readUsage(usage) ?? readUsage(isFields(groq) ? groq.usage : undefined);
  if (told !== undefined || !oneChoice || !Array.isArray(choices)) return told;
  const choice: unknown = choices[0];
  return isFields(choice) ? readUsage(choice.usage) : undefined;
}

/**
 * What the usages of two chunks tell together: the later one, but that a zero is no count of what the earlier
 * one has counted. Some servers tell the prompt at the beginning and the answer at the end.
 */
export function usageBehind(earlier: Usage | undefined, later: Usage): Usage {
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
 * Reads the usage object of a provider of OpenAI's wire format. Undefined where there is none, or one
 * that cannot be true (negative, fractional, beyond integers): it is then counted here.
 */
function readUsage(raw: unknown): Usage | undefined {
  if (typeof raw !== "object" || raw === null) return undefined;
  const usage = raw as Record<string, unknown>;
  const total = usage.total_tokens;
  const prompt = usage.prompt_tokens;
  const completion = usage.completion_tokens ?? difference(total, prompt);
  if (!isCount(prompt) || !isCount(completion)) return undefined;
  // No prompt is empty: some servers fill in zeros for what they have not counted.
  if (prompt === 0 && completion === 0) return undefined;
  const ofPrompt = usage.prompt_tokens_details as Record<string, unknown> | null | undefined;
  const ofCompletion = usage.completion_tokens_details as
    | Record<string, unknown>
    | null
    | undefined;
  const cached = countOr0(ofPrompt?.cached_tokens ?? firstOf(usage, CACHED_TOKENS_NAMES));
  const written = countOr0(ofPrompt && firstOf(ofPrompt, CACHE_WRITE_NAMES));
  const reasoning = countOr0(ofCompletion?.reasoning_tokens);
  const apart = tokensApart(total, prompt + completion, cached + written, reasoning);
  const promptTokens = prompt + apart.cache;
  const completionTokens = completion + apart.reasoning;
  const cachedPromptTokens = Math.min(cached, promptTokens);
  // OpenRouter's.
  const images = Math.min(countOr0(ofCompletion?.image_tokens), completionTokens);
  const sound = Math.min(countOr0(ofCompletion?.audio_tokens), completionTokens - images);
  const heard = Math.min(countOr0(ofPrompt?.audio_tokens), promptTokens - cachedPromptTokens);
  return {
    promptTokens,
    cachedPromptTokens,
    cacheWriteTokens: Math.min(written, promptTokens - cachedPromptTokens),
    completionTokens,
    reasoningTokens: Math.min(apart.reasoning || reasoning, completionTokens),
    estimated: false,
    ...(heard > 0 && { audioPromptTokens: heard }),
    ...mediaTokens(images, sound),
  };
}

const NOTHING_APART = { cache: 0, reasoning: 0 } as const;

/**
 * Tokens that a provider bills in addition to prompt and completion, visible in its total: reasoning, which
 * xAI also reports in the details and Gemini in the total alone, or tokens of a cache.
 */
function tokensApart(total: unknown, parts: number, cache: number, reasoning: number) {
  const beyond = isCount(total) ? total - parts : 0;
  if (beyond <= 0) return NOTHING_APART;
  if (beyond === reasoning) return { cache: 0, reasoning };
  if (reasoning > 0) return NOTHING_APART;
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
