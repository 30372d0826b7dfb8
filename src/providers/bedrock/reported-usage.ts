import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";

const HOUR = "1h";

/**
 * Reads the usage of Converse
 * (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html). The input tokens do
 * not include cache reads and writes, unless the total shows that they do. Returns undefined if the counts
 * are missing or impossible.
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

/** Returns the tokens written to the cache. The details list them by lifetime. */
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
