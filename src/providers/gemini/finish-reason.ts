import type { FinishReason } from "../interface.ts";

/** https://ai.google.dev/api/generate-content#FinishReason */
const FILTERED = new Set([
  "SAFETY",
  "RECITATION",
  "BLOCKLIST",
  "PROHIBITED_CONTENT",
  "SPII",
  "MODEL_ARMOR",
  "JAILBREAK",
  "IMAGE_SAFETY",
  "IMAGE_PROHIBITED_CONTENT",
  "IMAGE_RECITATION",
]);

/** The model went wrong: another try may do. */
const FAILED = new Set([
  "MALFORMED_FUNCTION_CALL",
  "MALFORMED_RESPONSE",
  "UNEXPECTED_TOOL_CALL",
  "TOO_MANY_TOOL_CALLS",
  "MISSING_THOUGHT_SIGNATURE",
  "NO_IMAGE",
  "IMAGE_OTHER",
]);

/** Whether the reason is that the answer could not be made. */
export function endsInFailure(reason: string): boolean {
  return FAILED.has(reason);
}

/** Whether the reason is a filter. */
export function isFiltered(reason: string): boolean {
  return FILTERED.has(reason);
}

/** The reason in the words of spec 6.2; what is not known counts as a plain stop. */
export function finishReasonOf(reason: string, hasToolCalls: boolean): FinishReason {
  if (reason === "MAX_TOKENS") return "length";
  if (isFiltered(reason)) return "content_filter";
  return hasToolCalls ? "tool_calls" : "stop";
}
