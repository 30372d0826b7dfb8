import { isFields } from "../../lib/json.ts";
import type { FinishReason } from "../interface.ts";

/**
 * Finish reasons by Anthropic's stop reason. `pause_turn` ends long answers with the provider's own tools,
 * which callers cannot request.
 */
const REASONS: ReadonlyMap<unknown, FinishReason> = new Map<unknown, FinishReason>([
  ["end_turn", "stop"],
  ["stop_sequence", "stop"],
  ["pause_turn", "stop"],
  ["max_tokens", "length"],
  ["model_context_window_exceeded", "length"],
  ["tool_use", "stop"],
  ["refusal", "content_filter"],
]);

/**
 * Returns the finish reason. An unknown stop reason counts as "stop". The number of calls decides on
 * "tool_calls": the input of a tool can be the answer, and some servers end calls like text.
 *
 * @param calls number of calls of the caller's tools in the answer
 */
export function finishReason(stopReason: unknown, calls: number): FinishReason {
  const reason = REASONS.get(stopReason) ?? "stop";
  return reason === "stop" && calls > 0 ? "tool_calls" : reason;
}

/**
 * Returns the provider's explanation of a refusal. Returns undefined if it did not refuse or gives no
 * explanation.
 */
export function refusalText(stopReason: unknown, details: unknown): string | undefined {
  if (stopReason !== "refusal" || !isFields(details)) return undefined;
  const { explanation } = details;
  return typeof explanation === "string" && explanation !== "" ? explanation : undefined;
}
