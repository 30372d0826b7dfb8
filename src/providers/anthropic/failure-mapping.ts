import { isFields, jsonValue } from "../../lib/json.ts";
import { retryAfterMs } from "../../lib/retry-after.ts";
import type { ProviderFailure, ProviderFailureKind } from "../interface.ts";
import type { ResponseHeaders } from "../transport/provider-response.ts";
import {
  type FailureContext,
  firstText,
  kindOfStatus,
  statusFailure,
} from "../transport/status-failure.ts";

/**
 * Statuses of error types that arrive in a stream or with status 200:
 * https://platform.claude.com/docs/en/api/errors.
 */
const STATUSES: ReadonlyMap<unknown, number> = new Map<unknown, number>([
  ["invalid_request_error", 400],
  ["authentication_error", 401],
  ["billing_error", 402],
  ["permission_error", 403],
  ["not_found_error", 404],
  ["request_too_large", 413],
  ["rate_limit_error", 429],
  ["api_error", 500],
  ["timeout_error", 504],
  ["overloaded_error", 529],
]);
const TOO_LONG = /prompt is too long|exceeds? (?:the )?context (?:limit|window)/i;
const FILTERED = /content filter/i;
/** Reported with status 400, although the provider account of the gateway's key has no credit. */
const NO_CREDIT = /credit balance is too low/i;

/** Returns the failure for a response with an error status. */
export function failureOfStatus(
  status: number,
  headers: ResponseHeaders,
  text: string,
  context: FailureContext,
): ProviderFailure {
  return failureOf(status, jsonValue(text), retryAfterMs(headers, context.nowMs), context);
}

/** Returns the failure that a stream event, or a body with a success status, reports. */
export function failureOfErrorBody(body: unknown, context: FailureContext): ProviderFailure {
  const error = isFields(body) && isFields(body.error) ? body.error : {};
  return failureOf(STATUSES.get(error.type) ?? 502, body, undefined, context);
}

function failureOf(
  status: number,
  body: unknown,
  waitMs: number | undefined,
  context: FailureContext,
): ProviderFailure {
  const error = isFields(body) && isFields(body.error) ? body.error : {};
  const message = firstText([error.message]);
  const kind = kindOf(status, message ?? "");
  return statusFailure(
    status,
    {
      kind,
      message,
      retryAfterMs: waitMs,
      isTooLong: kind === "rejected" && (status === 413 || TOO_LONG.test(message ?? "")),
      details: error.details,
    },
    context,
  );
}

function kindOf(status: number, message: string): ProviderFailureKind {
  if (status === 400 && NO_CREDIT.test(message)) return "misconfigured";
  if (status === 400 && FILTERED.test(message)) return "content_policy";
  return kindOfStatus(status);
}
