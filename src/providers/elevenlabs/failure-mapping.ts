import { isFields, jsonValue } from "../../lib/json.ts";
import { retryAfterMs } from "../../lib/retry-after.ts";
import type { ProviderFailure, ProviderFailureKind } from "../interface.ts";
import { QUOTA_EXHAUSTED_RETRY_MS } from "../openai/failure-mapping.ts";
import { type FailureContext, kindOfStatus, statusFailure } from "../transport/status-failure.ts";

/** What `detail.status` says whatever the HTTP status is (https://elevenlabs.io/docs/developers/resources/error-messages). */
const KINDS: Readonly<Record<string, ProviderFailureKind>> = {
  // Comes with 401; the key is good, and its account is used up.
  quota_exceeded: "rate_limited",
  too_many_concurrent_requests: "rate_limited",
  system_busy: "unavailable",
  // With 404 or 400: the caller names the voice.
  voice_not_found: "rejected",
  invalid_uid: "rejected",
  max_character_limit_exceeded: "rejected",
};
const VOICE = /voice|invalid_uid/;

/** The failure that a response with an error status stands for. */
export function failureOfStatus(
  status: number,
  headers: { get(name: string): string | null },
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

/** The failure in a body that came with a success status; undefined where it has none. */
export function failureInside(body: unknown, context: FailureContext): ProviderFailure | undefined {
  if (!isFields(body) || (body.detail === undefined && body.error === undefined)) return undefined;
  const { message } = parseErrorBody(body);
  return statusFailure(502, { kind: "unavailable", message }, context);
}

interface Complaint {
  readonly code?: string | undefined;
  readonly message?: string | undefined;
}

/** `{detail: {status, message}}`, `{detail: "…"}`, or the list of a check of the body: `{detail: [{loc, msg}]}`. */
function parseErrorBody(body: unknown): Complaint {
  if (!isFields(body)) return {};
  const detail: unknown = Array.isArray(body.detail) ? body.detail[0] : body.detail;
  if (typeof detail === "string") return { message: detail };
  const from = isFields(detail) ? detail : body;
  const said = [from.message, from.msg, from.error];
  return {
    code: [from.status, from.code].find((one): one is string => typeof one === "string"),
    message: said.find((one): one is string => typeof one === "string" && one !== ""),
  };
}
