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
 * Returns the failure for a response with an error status (https://developers.deepgram.com/docs/errors):
 * `{err_code, err_msg}`, or `{category, message, details}`.
 */
export function failureOfStatus(
  status: number,
  headers: ResponseHeaders,
  text: string,
  context: FailureContext,
): ProviderFailure {
  const report = {
    kind: kindOfStatus(status),
    message: messageIn(jsonValue(text)),
    retryAfterMs: retryAfterMs(headers, context.nowMs),
  };
  return statusFailure(status, report, context);
}

/** Returns the failure in a body with a success status. Returns undefined if it has none. */
export function failureInside(body: unknown, context: FailureContext): ProviderFailure | undefined {
  if (!isFields(body) || body.results !== undefined) return undefined;
  const message = messageIn(body);
  if (message === undefined) return undefined;
  return statusFailure(502, { kind: "unavailable", message }, context);
}

function messageIn(body: unknown): string | undefined {
  if (typeof body === "string" && body !== "") return body;
  if (!isFields(body)) return undefined;
  return firstText([body.err_msg, body.message, body.reason, body.details, body.error]);
}
