import { isFields } from "../../lib/json.ts";
import type { FinishReason } from "../interface.ts";

/** `pause_turn` ends answers that the provider's own tools have made long, which callers cannot ask for. */
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
 * An unknown reason counts as a plain end. The calls decide whether an answer ends with calls: the input of a
 * tool may be the answer, and some servers end calls as they end text.
 *
 * @param calls how many calls of the caller's tools the answer has
 */
export function finishReason(stopReason: unknown, calls: number): FinishReason {
  const reason = REASONS.get(stopReason) ?? "stop";
  return reason === "stop" && calls > 0 ? "tool_calls" : reason;
}

/** Why the provider refused, in its words; undefined where it did not, or does not say. */
export function refusalText(stopReason: unknown, details: unknown): string | undefined {
  if (stopReason !== "refusal" || !isFields(details)) return undefined;
  const { explanation } = details;
  return typeof explanation === "string" && explanation !== "" ? explanation : undefined;
}
