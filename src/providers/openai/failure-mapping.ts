import { boundedWaitMs, retryAfterMs } from "../../lib/retry-after.ts";
import type { ProviderFailure, ProviderFailureKind } from "../interface.ts";
import { type FailureContext, kindOfStatus, statusFailure } from "../transport/status-failure.ts";
import { tellsTooLong } from "./context-overflow.ts";
import { complaintOf, type ProviderComplaint, readComplaint } from "./error-body.ts";

/** An account without money does not recover by waiting seconds: the endpoint is left alone this long. */
export const QUOTA_EXHAUSTED_RETRY_MS = 600_000;

const CONTENT_POLICY_CODES = new Set([
  "content_policy",
  "content_policy_violation",
  "content_filter",
  "responsibleaipolicyviolation",
  "moderation_blocked",
  "invalid_prompt",
]);
/** Said with status 400 by some, although it is our key or our mapping that is wrong. */
const MISCONFIGURED_CODES = new Set([
  "invalid_api_key",
  "model_not_found",
  "deploymentnotfound",
  "operationnotsupported",
  "invalid_model",
  // Groq's
  "model_decommissioned",
  "model_terms_required",
  "organization_restricted",
]);
/** As OpenRouter says, with status 404, that the model cannot do what the request asks for. */
const WISH_COMPLAINT = /^no endpoints found that support\b/i;
const KEY_COMPLAINT = /^(?:incorrect api key|invalid api key|api key not valid)/i;

/** The failure that a response with an error status stands for. */
export function failureOfStatus(
  status: number,
  headers: { get(name: string): string | null },
  text: string,
  context: FailureContext,
): ProviderFailure {
  const complaint = readComplaint(text);
  const waitMs = retryAfterMs(headers, context.nowMs);
  return failureOf(status, complaint, waitMs, context);
}

/**
 * The failure inside a body that came with status 200: `{"error": …}` or `{"object": "error", …}`
 * in place of choices. Undefined when it is no such body.
 */
export function failureInside(body: unknown, context: FailureContext): ProviderFailure | undefined {
  if (typeof body !== "object" || body === null) return undefined;
  const { error, choices, object } = body as Record<string, unknown>;
  if (Array.isArray(choices) && choices.length > 0) return undefined;
  if (!error && object !== "error") return undefined;
  return failureTold(body, context);
}

/**
 * The failure that a body or an event tells of under a status of success. Its status is the one it names,
 * else one that its code stands for, else 502.
 */
export function failureTold(body: unknown, context: FailureContext): ProviderFailure {
  const complaint = complaintOf(body);
  return failureOf(complaint.status ?? statusOfCodes(complaint), complaint, undefined, context);
}

function statusOfCodes({ codes }: ProviderComplaint): number {
  if (codes.some((code) => code.includes("rate_limit") || code === "insufficient_quota"))
    return 429;
  if (codes.some((code) => code === "invalid_request_error" || CONTENT_POLICY_CODES.has(code))) {
    return 400;
  }
  if (codes.some((code) => code.includes("authentication") || MISCONFIGURED_CODES.has(code))) {
    return 401;
  }
  return 502;
}

function failureOf(
  status: number,
  complaint: ProviderComplaint,
  headerWaitMs: number | undefined,
  context: FailureContext,
): ProviderFailure {
  const kind = kindOf(status, complaint);
  const failure = {
    kind,
    message: complaint.message,
    param: complaint.param,
    retryAfterMs: waitOf(kind, complaint, headerWaitMs),
    isTooLong: kind === "rejected" && tellsTooLong(complaint),
  };
  return statusFailure(status, failure, context);
}

function kindOf(status: number, complaint: ProviderComplaint): ProviderFailureKind {
  if (status === 400 || status === 403 || status === 422) {
    if (complaint.moderated) return "content_policy";
    if (complaint.codes.some((code) => CONTENT_POLICY_CODES.has(code))) return "content_policy";
    if (complaint.codes.some((code) => MISCONFIGURED_CODES.has(code))) return "misconfigured";
    if (KEY_COMPLAINT.test(complaint.message ?? "")) return "misconfigured";
  }
  // Groq's word for more tokens at once than an account may send in a minute.
  if (status === 413 && complaint.codes.includes("rate_limit_exceeded")) return "rate_limited";
  if (status === 404 && WISH_COMPLAINT.test(complaint.message ?? "")) return "rejected";
  return kindOfStatus(status);
}

function waitOf(
  kind: ProviderFailureKind,
  complaint: ProviderComplaint,
  headerWaitMs: number | undefined,
): number | undefined {
  if (kind === "rate_limited" && complaint.codes.includes("insufficient_quota")) {
    return QUOTA_EXHAUSTED_RETRY_MS;
  }
  if (headerWaitMs !== undefined) return headerWaitMs;
  return complaint.retryAfterMs === undefined ? undefined : boundedWaitMs(complaint.retryAfterMs);
}
