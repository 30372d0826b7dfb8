import type { PlannedChoice } from "./plan-answer.ts";
import type { SandboxRequest } from "./request.ts";
import { countTokens } from "./tokens.ts";

/** What every message counts besides its text. */
export const MESSAGE_OVERHEAD_TOKENS = 3;
/** What an image, audio or file part counts, whatever its size. */
export const MEDIA_PART_TOKENS = 8;

/** Usage in OpenAI's shape, of the tokens of tokens.ts. The prompt is messages, tool calls and tools. */
export function usageOf(request: SandboxRequest, choices: readonly PlannedChoice[]) {
  const promptTokens = request.messages.reduce(
    (sum, message) =>
      sum +
      MESSAGE_OVERHEAD_TOKENS +
      countTokens(message.text) +
      countTokens(message.toolCallsJson) +
      message.mediaParts * MEDIA_PART_TOKENS,
    countTokens(request.toolsJson),
  );
  const reasoningTokens = sumOf(choices, (choice) => choice.reasoningTokens.length);
  const answerTokens = sumOf(
    choices,
    (choice) =>
      (choice.contentTokens?.length ?? 0) +
      choice.toolCalls.reduce((sum, call) => sum + 1 + call.argumentTokens.length, 0),
  );
  const completionTokens = reasoningTokens + answerTokens;
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: 0, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: reasoningTokens,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}

function sumOf<T>(items: readonly T[], amount: (item: T) => number): number {
  return items.reduce((sum, item) => sum + amount(item), 0);
}
