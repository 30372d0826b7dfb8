import type { FinishReason } from "../interface.ts";

/** Reasons of content filters: https://ai.google.dev/api/generate-content#FinishReason */
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

/** Reasons with which the model failed. Another attempt can succeed. */
const FAILED = new Set([
  "MALFORMED_FUNCTION_CALL",
  "MALFORMED_RESPONSE",
  "TOO_MANY_TOOL_CALLS",
  "NO_IMAGE",
  "IMAGE_OTHER",
]);

/**
 * Reasons with which the request is at fault: it does not offer the called tool, or the signature of a
 * thought is missing. Another attempt ends in the same way, and Google bills it too.
 */
const REJECTED = new Set(["UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE"]);

/** Returns the failure kind of a finish reason. Returns undefined if there is an answer. */
export function failureKindOf(reason: string): "rejected" | "unavailable" | undefined {
  if (REJECTED.has(reason)) return "rejected";
  return FAILED.has(reason) ? "unavailable" : undefined;
}

/** Returns true if the reason is a content filter. */
export function isFiltered(reason: string): boolean {
  return FILTERED.has(reason);
}

/** Returns the reason in the terms of spec 6.2. An unknown reason counts as "stop". */
export function finishReasonOf(reason: string, hasToolCalls: boolean): FinishReason {
  if (reason === "MAX_TOKENS") return "length";
  if (isFiltered(reason)) return "content_filter";
  return hasToolCalls ? "tool_calls" : "stop";
}
