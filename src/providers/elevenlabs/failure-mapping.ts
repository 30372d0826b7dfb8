import { isFields, jsonValue } from "../../lib/json.ts";
import { retryAfterMs } from "../../lib/retry-after.ts";
import type { ProviderFailure, ProviderFailureKind } from "../interface.ts";
import { QUOTA_EXHAUSTED_RETRY_MS } from "../openai/failure-mapping.ts";
import type { ResponseHeaders } from "../transport/provider-response.ts";
import {
  type FailureContext,
  firstText,
  kindOfStatus,
  statusFailure,
} from "../transport/status-failure.ts";

/**
 * Failure kinds by `detail.status`, whatever the HTTP status is
 * (https://elevenlabs.io/docs/developers/resources/error-messages).
 */
const KINDS: Readonly<Record<string, ProviderFailureKind>> = {
  // Sent with status 401: the key is valid, and its account has no quota left.
  quota_exceeded: "rate_limited",
  too_many_concurrent_requests: "rate_limited",
  system_busy: "unavailable",
  // Sent with status 404 or 400: the caller names the voice.
  voice_not_found: "rejected",
  invalid_uid: "rejected",
  max_character_limit_exceeded: "rejected",
};
const VOICE = /voice|invalid_uid/;

/** Returns the failure for a response with an error status. */
export function failureOfStatus(
  status: number,
  headers: ResponseHeaders,
  text: string,
  context: FailureContext,
): ProviderFailure {
  const { code = "", message } = parseErrorBody(jsonValue(text));
  const kind = (Object.hasOwn(KINDS, code) ? KINDS[code] : undefined) ?? kindOfStatus(status);
  const waitMs =
    code === "quota_exceeded" ? QUOTA_EXHAUSTED_RETRY_MS : retryAfterMs(headers, context.nowMs);
  const param = kind === "rejected" && VOICE.test(code) ? "voice" : null;
  return statusFailure(status, { kind, message, param, retryAfterMs: waitMs }, context);
}

/** Returns the failure in a body with a success status. Returns undefined if it has none. */
export function failureInside(body: unknown, context: FailureContext): ProviderFailure | undefined {
  if (!isFields(body) || (body.detail === undefined && body.error === undefined)) return undefined;
  const { message } = parseErrorBody(body);
  return statusFailure(502, { kind: "unavailable", message }, context);
}

interface ErrorDetails {
  readonly code?: string | undefined;
  readonly message?: string | undefined;
}

/**
 * Parses `{detail: {status, message}}`, `{detail: "…"}`, or the list of validation errors: `{detail: [{loc,
 * msg}]}`.
 */
function parseErrorBody(body: unknown): ErrorDetails {
  if (!isFields(body)) return {};
  const detail: unknown = Array.isArray(body.detail) ? body.detail[0] : body.detail;
  if (typeof detail === "string") return { message: detail };
  const from = isFields(detail) ? detail : body;
  return {
    code: [from.status, from.code].find((value): value is string => typeof value === "string"),
    message: firstText([from.message, from.msg, from.error]),
  };
}
