import type { FieldModel } from "../chat-fields.ts";
import { claudeTraits } from "./model-traits.ts";

const INTERLEAVED_THINKING = "interleaved-thinking-2025-05-14";

/** Betas that the documentation of both Amazon Bedrock and Vertex AI has. */
const OF_BOTH: readonly string[] = [
  "computer-use-2025-01-24",
  "computer-use-2025-11-24",
  "context-1m-2025-08-07",
  "context-management-2025-06-27",
  INTERLEAVED_THINKING,
];

/**
 * Which betas a platform takes: it refuses requests that name others. Interleaved thinking is refused for models
 * that lack it, and later ones have it without the beta
 * (https://platform.claude.com/docs/en/build-with-claude/extended-thinking#interleaved-thinking).
 *
 * @param more betas that this platform documents besides
 */
export function betasTaken(...more: readonly string[]) {
  const taken: ReadonlySet<string> = new Set([...OF_BOTH, ...more]);
  return (beta: string, { model, modelId }: FieldModel): boolean => {
    if (beta !== INTERLEAVED_THINKING) return taken.has(beta);
    const { interleavesThinking, takesThinkingBudget } = claudeTraits(model, modelId);
    return interleavesThinking && takesThinkingBudget;
  };
}
