import { isFields, jsonValue } from "../../lib/json.ts";
import { retryAfterMs } from "../../lib/retry-after.ts";
import type { ProviderFailure } from "../interface.ts";
import { type FailureContext, kindOfStatus, statusFailure } from "../transport/status-failure.ts";

/**
 * Returns the failure for a response with an error status (https://developers.deepgram.com/docs/errors):
 * `{err_code, err_msg}`, or `{category, message, details}`.
 */
export function failureOfStatus(
  status: number,
  headers: { get(name: string): string | null },
  text: string,
  context: FailureContext,
): ProviderFailure {
  const report = {
    kind: kindOfStatus(status),
    message: parseErrorBody(jsonValue(text)),
    retryAfterMs: retryAfterMs(headers, context.nowMs),
  };
  return statusFailure(status, report, context);
}

/** Returns the failure in a body with a success status. Returns undefined if it has none. */
export function failureInside(body: unknown, context: FailureContext): ProviderFailure | undefined {
  if (!isFields(body) || body.results !== undefined) return undefined;
  const message = parseErrorBody(body);
  if (message === undefined) return undefined;
  return statusFailure(502, { kind: "unavailable", message }, context);
}

function parseErrorBody(body: unknown): string | undefined {
  if (typeof body === "string" && body !== "") return body;
  if (!isFields(body)) return undefined;
  const messages = [body.err_msg, body.message, body.reason, body.details, body.error];
  return messages.find(
    (message): message is string => typeof message === "string" && message !== "",
  );
}
