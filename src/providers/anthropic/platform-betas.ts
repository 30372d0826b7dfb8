import type { FieldModel } from "../chat-fields.ts";
import { claudeTraits } from "./model-traits.ts";

const INTERLEAVED_THINKING = "interleaved-thinking-2025-05-14";

/** Betas that the documentation of both Amazon Bedrock and Vertex AI lists. */
const SHARED_BETAS: readonly string[] = [
  "computer-use-2025-01-24",
  "computer-use-2025-11-24",
  "context-1m-2025-08-07",
  "context-management-2025-06-27",
  INTERLEAVED_THINKING,
];

/**
 * Returns a function that tests whether a platform accepts a beta for a model. Platforms reject requests that
 * name others. They reject interleaved thinking for models without it, and later models interleave without
 * the beta (https://platform.claude.com/docs/en/build-with-claude/extended-thinking#interleaved-thinking).
 *
 * @param more further betas that this platform documents
 */
export function acceptsBetas(...more: readonly string[]) {
  const accepted: ReadonlySet<string> = new Set([...SHARED_BETAS, ...more]);
  return (beta: string, { model, modelId }: FieldModel): boolean => {
    if (beta !== INTERLEAVED_THINKING) return accepted.has(beta);
    const { interleavesThinking, takesThinkingBudget } = claudeTraits(model, modelId);
    return interleavesThinking && takesThinkingBudget;
  };
}
