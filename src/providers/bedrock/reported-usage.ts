import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";

const HOUR = "1h";

/**
 * Reads the usage of Converse
 * (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html). What a cache had or took
 * stands beside the input tokens; where the total shows that they include it, they are the whole prompt.
 * Undefined where there is none, or one that cannot be true.
 */
export function reportedUsage(raw: unknown): Usage | undefined {
  if (!isFields(raw)) return undefined;
  const input = count(raw.inputTokens);
  const completionTokens = count(raw.outputTokens);
  if (input === undefined || completionTokens === undefined) return undefined;
  const read = count(raw.cacheReadInputTokens) ?? 0;
  const { written, forHour } = cacheWrites(raw);
  const cached = read + written;
  const isIncluded = cached <= input && count(raw.totalTokens) === input + completionTokens;
  const promptTokens = isIncluded ? input : input + cached;
  if (promptTokens === 0 || !Number.isSafeInteger(promptTokens)) return undefined;
  return {
    promptTokens,
    cachedPromptTokens: read,
    cacheWriteTokens: written,
    ...(forHour > 0 && { cacheWriteHourTokens: forHour }),
    completionTokens,
    reasoningTokens: 0,
    estimated: false,
  };
}

/** The details are the tokens written, by how long they are kept. */
function cacheWrites(raw: Readonly<Record<string, unknown>>) {
  const details = Array.isArray(raw.cacheDetails) ? raw.cacheDetails.filter(isFields) : [];
  let forHour = 0;
  let detailed = 0;
  for (const { ttl, inputTokens } of details) {
    const tokens = count(inputTokens) ?? 0;
    detailed += tokens;
    if (ttl === HOUR) forHour += tokens;
  }
  const written = Math.max(count(raw.cacheWriteInputTokens) ?? 0, detailed);
  return { written, forHour };
}

function count(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}
