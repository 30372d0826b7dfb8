import { readUsage, type Usage } from "../../money/usage.ts";
import { isFields } from "./provider-content.ts";

/**
 * The usage that a completion or a chunk of one tells: its own, or Groq's in `x_groq`, or Moonshot's in the
 * choice, which is that of the answer where that has `oneChoice`. Undefined where it tells none that can be
 * true.
 */
export function reportedUsage(
  body: Readonly<Record<string, unknown>>,
  oneChoice: boolean,
): Usage | undefined {
  const { usage, x_groq: groq, choices } = body;
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
