import { isFields, jsonValue } from "../../lib/json.ts";
import { retryAfterMs } from "../../lib/retry-after.ts";
import type { ProviderFailure } from "../interface.ts";
import type { ResponseHeaders } from "../transport/provider-response.ts";
import {
  type FailureContext,
  firstText,
  kindOfStatus,
  statusFailure,
} from "../transport/status-failure.ts";

/**
 * Matches "the input length exceeds the context length" and "the prompt is longer than the context length
 * currently …".
 */
const TOO_LONG = /(?:exceeds|longer than) the (?:maximum |available )?context/i;

/** Returns the failure for a response with an error status: https://docs.ollama.com/api/errors */
export function failureOfStatus(
  status: number,
  headers: ResponseHeaders,
  text: string,
  context: FailureContext,
): ProviderFailure {
  return failureOf(status, jsonValue(text), retryAfterMs(headers, context.nowMs), context);
}

/**
 * Returns the failure inside an object with a success status, as in the middle of a stream. Returns undefined
 * if it has none.
 */
export function failureInside(body: unknown, context: FailureContext): ProviderFailure | undefined {
  if (!isFields(body) || body.error === undefined || body.error === null) return undefined;
  const { status } = body;
  const isStatus = Number.isInteger(status) && (status as number) >= 400;
  return failureOf(isStatus ? (status as number) : 502, body, undefined, context);
}

function failureOf(
  status: number,
  body: unknown,
  waitMs: number | undefined,
  context: FailureContext,
): ProviderFailure {
  const error = isFields(body) ? body.error : undefined;
  const message = firstText([isFields(error) ? error.message : error]);
  // Some versions report it with a status of a server error.
  const isTooLong = TOO_LONG.test(message ?? "");
  const kind = isTooLong ? "rejected" : kindOfStatus(status);
  return statusFailure(status, { kind, message, retryAfterMs: waitMs, isTooLong }, context);
}
