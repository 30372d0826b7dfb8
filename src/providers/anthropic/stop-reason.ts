import { isFields } from "../../lib/json.ts";
import type { FinishReason } from "../interface.ts";

/** `pause_turn` ends answers that the provider's own tools have made long, which callers cannot ask for. */
const REASONS: ReadonlyMap<unknown, FinishReason> = new Map<unknown, FinishReason>([
  ["end_turn", "stop"],
  ["stop_sequence", "stop"],
  ["pause_turn", "stop"],
  ["max_tokens", "length"],
  ["model_context_window_exceeded", "length"],
  ["tool_use", "tool_calls"],
  ["refusal", "content_filter"],
]);

/** One that is not known counts as a plain end. An answer that comes as the input of a tool ends plainly, too. */
export function finishReason(stopReason: unknown, answersByTool: boolean): FinishReason {
  const reason = REASONS.get(stopReason) ?? "stop";
  return reason === "tool_calls" && answersByTool ? "stop" : reason;
}

/** Why the provider refused, in its words; undefined where it did not, or does not say. */
export function refusalText(stopReason: unknown, details: unknown): string | undefined {
  if (stopReason !== "refusal" || !isFields(details)) return undefined;
  const { explanation } = details;
  return typeof explanation === "string" && explanation !== "" ? explanation : undefined;
}
