import { isFields, jsonValue } from "../../lib/json.ts";
import { retryAfterMs } from "../../lib/retry-after.ts";
import type { FinishReason, ProviderFailure, ProviderFailureKind } from "../interface.ts";
import { type FailureContext, kindOfStatus, statusFailure } from "../transport/status-failure.ts";

/** "too many tokens: size limit exceeded by 11326 tokens", but not of a limit of the answer that is too high. */
const TOO_LONG = /too many tokens: (?!max tokens)/i;
/** https://docs.cohere.com/reference/errors: the text holds what Cohere blocks. */
const BLOCKED_STATUS = 498;

interface Headers {
  get(name: string): string | null;
}

/** The failure that a response with an error status stands for. */
export function failureOfStatus(
  status: number,
  headers: Headers,
  text: string,
  context: FailureContext,
): ProviderFailure {
  const message = parseErrorBody(jsonValue(text));
  const kind = status === BLOCKED_STATUS ? "content_policy" : kindOfStatus(status);
  const waitMs = retryAfterMs(headers, context.nowMs);
  const isTooLong = kind === "rejected" && (status === 413 || TOO_LONG.test(message ?? ""));
  return statusFailure(status, { kind, message, retryAfterMs: waitMs, isTooLong }, context);
}

/** The failure inside a body or event that came with a success status; undefined if it has none. */
export function failureInside(body: unknown, context: FailureContext): ProviderFailure | undefined {
  if (!isFields(body)) return undefined;
  const isError = body.type === "error" || (body.error ?? undefined) !== undefined;
  const isBare = body.type === undefined && typeof body.message === "string";
  if (!isError && !isBare) return undefined;
  return statusFailure(502, { kind: "unavailable", message: parseErrorBody(body) }, context);
}

/** Cohere's `{message}`, and the forms that proxies before it have. */
function parseErrorBody(body: unknown): string | undefined {
  if (!isFields(body)) return undefined;
  const { message, error } = body;
  const said = [message, isFields(error) ? error.message : error];
  return said.find((one): one is string => typeof one === "string" && one !== "");
}

/** How an answer ended that was not broken off; `ERROR_TOXIC` and `ERROR_LIMIT` are older names. */
const REASONS: ReadonlyMap<unknown, FinishReason> = new Map<unknown, FinishReason>([
  ["COMPLETE", "stop"],
  ["STOP_SEQUENCE", "stop"],
  ["MAX_TOKENS", "length"],
  ["ERROR_LIMIT", "length"],
  ["TOOL_CALL", "tool_calls"],
  ["ERROR_TOXIC", "content_filter"],
]);
/** With these Cohere breaks off an answer. */
const BROKEN_OFF: ReadonlyMap<unknown, ProviderFailureKind> = new Map<unknown, ProviderFailureKind>(
  [
    ["ERROR", "unavailable"],
    ["TIMEOUT", "timeout"],
  ],
);

/** One that is not known counts as a plain end. */
export function finishReason(reason: unknown, hasCalls: boolean): FinishReason {
  const known = REASONS.get(reason) ?? "stop";
  return known === "stop" && hasCalls ? "tool_calls" : known;
}

/** The failure that an answer ended with; undefined where it ended as answers do. */
export function failureOfEnd(
  reason: unknown,
  error: unknown,
  context: FailureContext,
): ProviderFailure | undefined {
  const kind = BROKEN_OFF.get(reason);
  const isTold = typeof error === "string" && error !== "";
  if (kind === undefined && !isTold) return undefined;
  const message = isTold ? error : `the provider broke the answer off (${reason})`;
  return statusFailure(
    kind === "timeout" ? 408 : 502,
    { kind: kind ?? "unavailable", message },
    context,
  );
}
