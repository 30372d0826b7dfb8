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
  "TOO_MANY_TOOL_CALLS",
  "NO_IMAGE",
  "IMAGE_OTHER",
]);

/**
 * The request is at fault: it offers no such tool, or lacks the signature of a thought. Another try ends in the same
 * way, and Google bills it too.
 */
const REJECTED = new Set(["UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE"]);

/** The kind of failure that the reason stands for. Returns undefined if there is an answer. */
export function failureKindOf(reason: string): "rejected" | "unavailable" | undefined {
  if (REJECTED.has(reason)) return "rejected";
  return FAILED.has(reason) ? "unavailable" : undefined;
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
