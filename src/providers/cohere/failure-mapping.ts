import { isFields, jsonValue } from "../../lib/json.ts";
import { retryAfterMs } from "../../lib/retry-after.ts";
import type { FinishReason, ProviderFailure, ProviderFailureKind } from "../interface.ts";
import type { ResponseHeaders } from "../transport/provider-response.ts";
import {
  type FailureContext,
  firstText,
  kindOfStatus,
  statusFailure,
} from "../transport/status-failure.ts";

/**
 * Matches "too many tokens: size limit exceeded by 11326 tokens", but not the error for an output limit that
 * is too high.
 */
const TOO_LONG = /too many tokens: (?!max tokens)/i;
/** Status for a text that Cohere blocks: https://docs.cohere.com/reference/errors. */
const BLOCKED_STATUS = 498;

/** Returns the failure for a response with an error status. */
export function failureOfStatus(
  status: number,
  headers: ResponseHeaders,
  text: string,
  context: FailureContext,
): ProviderFailure {
  const message = messageIn(jsonValue(text));
  const kind = status === BLOCKED_STATUS ? "content_policy" : kindOfStatus(status);
  const waitMs = retryAfterMs(headers, context.nowMs);
  const isTooLong = kind === "rejected" && (status === 413 || TOO_LONG.test(message ?? ""));
  return statusFailure(status, { kind, message, retryAfterMs: waitMs, isTooLong }, context);
}

/** Returns the failure inside a body or event with a success status. Returns undefined if it has none. */
export function failureInside(body: unknown, context: FailureContext): ProviderFailure | undefined {
  if (!isFields(body)) return undefined;
  const isError = body.type === "error" || (body.error ?? undefined) !== undefined;
  const isBare = body.type === undefined && typeof body.message === "string";
  if (!isError && !isBare) return undefined;
  return statusFailure(502, { kind: "unavailable", message: messageIn(body) }, context);
}

/** Returns the message of Cohere's `{message}`, or of the error forms of proxies. */
function messageIn(body: unknown): string | undefined {
  if (!isFields(body)) return undefined;
  const { message, error } = body;
  return firstText([message, isFields(error) ? error.message : error]);
}

/** Finish reasons of complete answers. `ERROR_TOXIC` and `ERROR_LIMIT` are older names. */
const REASONS: ReadonlyMap<unknown, FinishReason> = new Map<unknown, FinishReason>([
  ["COMPLETE", "stop"],
  ["STOP_SEQUENCE", "stop"],
  ["MAX_TOKENS", "length"],
  ["ERROR_LIMIT", "length"],
  ["TOOL_CALL", "tool_calls"],
  ["ERROR_TOXIC", "content_filter"],
]);
/** Reasons with which Cohere aborts an answer. */
const ABORT_REASONS: ReadonlyMap<unknown, ProviderFailureKind> = new Map<
  unknown,
  ProviderFailureKind
>([
  ["ERROR", "unavailable"],
  ["TIMEOUT", "timeout"],
]);

/** Returns the finish reason. An unknown reason counts as "stop". */
export function finishReason(reason: unknown, hasCalls: boolean): FinishReason {
  const finish = REASONS.get(reason) ?? "stop";
  return finish === "stop" && hasCalls ? "tool_calls" : finish;
}

/** Returns the failure with which an answer ended. Returns undefined if it ended normally. */
export function failureOfEnd(
  reason: unknown,
  error: unknown,
  context: FailureContext,
): ProviderFailure | undefined {
  const kind = ABORT_REASONS.get(reason);
  const hasMessage = typeof error === "string" && error !== "";
  if (kind === undefined && !hasMessage) return undefined;
  const message = hasMessage ? error : `the provider aborted the answer (${reason})`;
  return statusFailure(
    kind === "timeout" ? 408 : 502,
    { kind: kind ?? "unavailable", message },
    context,
  );
}
