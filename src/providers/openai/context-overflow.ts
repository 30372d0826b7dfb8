import type { ProviderComplaint } from "./error-body.ts";

const CODES: ReadonlySet<string> = new Set([
  "context_length_exceeded",
  // llama.cpp
  "exceed_context_size_error",
]);

/**
 * As those say it who have no code for it: vLLM, SGLang, OpenRouter, DeepSeek and Mistral "maximum context
 * length", xAI "maximum prompt length", Anthropic behind others and Fireworks "prompt is too long", Google
 * "token count exceeds".
 */
const WORDS =
  /max(?:imum)? (?:model )?context length|maximum prompt length|context (?:window|length) (?:is only|exceed)|exceeds? the (?:available |model's )?context|prompt (?:is )?too long|token count exceeds/i;

/** Whether a provider complains that prompt and answer do not fit the model's context: agents shorten it then. */
export function tellsTooLong({ codes, message }: ProviderComplaint): boolean {
  return codes.some((code) => CODES.has(code)) || WORDS.test(message ?? "");
}
