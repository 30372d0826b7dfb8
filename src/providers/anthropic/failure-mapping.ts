import { isFields, jsonValue } from "../../lib/json.ts";
import { retryAfterMs } from "../../lib/retry-after.ts";
import type { ProviderFailure, ProviderFailureKind } from "../interface.ts";
import { type FailureContext, kindOfStatus, statusFailure } from "../transport/status-failure.ts";

/** https://platform.claude.com/docs/en/api/errors: statuses of errors that come in a stream or under 200. */
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
/** Said with 400, although it is the account behind our key that has no money. */
const NO_CREDIT = /credit balance is too low/i;

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
  return failureOf(status, jsonValue(text), retryAfterMs(headers, context.nowMs), context);
}

/** The failure that a stream event, or a body with a success status, reports. */
export function failureTold(body: unknown, context: FailureContext): ProviderFailure {
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
  const message = typeof error.message === "string" && error.message !== "" ? error.message : "";
  const kind = kindOf(status, message);
  return statusFailure(
    status,
    {
      kind,
      message: message === "" ? undefined : message,
      retryAfterMs: waitMs,
      isTooLong: kind === "rejected" && (status === 413 || TOO_LONG.test(message)),
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
