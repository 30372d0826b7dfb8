import { isFields } from "../../../lib/json.ts";
import type { FinishReason } from "../../interface.ts";

const BY_NAME: ReadonlyMap<string, FinishReason> = new Map<string, FinishReason>([
  ["stop", "stop"],
  ["eos", "stop"],
  ["end_turn", "stop"],
  ["stop_sequence", "stop"],
  ["length", "length"],
  ["max_tokens", "length"],
  ["model_length", "length"],
  ["model_context_window_exceeded", "length"],
  ["tool_calls", "tool_calls"],
  ["tool_use", "tool_calls"],
  ["function_call", "tool_calls"],
  ["content_filter", "content_filter"],
  ["content_filtered", "content_filter"],
  ["safety", "content_filter"],
  ["refusal", "content_filter"],
  ["sensitive", "content_filter"],
]);

/**
 * The reason in the words of spec 6.2; what no provider is known to say counts as a plain stop. Some stop
 * plainly behind tool calls, which clients do not look at then.
 */
export function finishReason(raw: unknown, hasToolCalls = false): FinishReason | null {
  if (typeof raw !== "string" || raw === "") return null;
  const reason = BY_NAME.get(raw) ?? BY_NAME.get(raw.toLowerCase()) ?? "stop";
  return reason === "stop" && hasToolCalls ? "tool_calls" : reason;
}

/** With these Mistral, OpenRouter, DeepSeek and Z.AI end an answer that they broke off. */
const FAILURES = new Set<unknown>(["error", "insufficient_system_resource", "network_error"]);

export function endsInFailure(choice: Readonly<Record<string, unknown>>): boolean {
  return FAILURES.has(choice.finish_reason);
}

/** The first of the choices that the provider broke off; undefined where it broke off none. */
export function failedChoice(choices: unknown): Record<string, unknown> | undefined {
  if (!Array.isArray(choices)) return undefined;
  return choices.find((choice: unknown) => isFields(choice) && endsInFailure(choice));
}
