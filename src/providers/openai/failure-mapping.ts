import { jsonValue } from "../../lib/json.ts";
import { boundedWaitMs, retryAfterMs } from "../../lib/retry-after.ts";
import type { ProviderFailure, ProviderFailureKind } from "../interface.ts";
import type { ResponseHeaders } from "../transport/provider-response.ts";
import { type FailureContext, kindOfStatus, statusFailure } from "../transport/status-failure.ts";
import {
  CONTENT_POLICY_CODES,
  KEY_FAULT_MESSAGE,
  MISCONFIGURED_CODES,
  TOO_LONG_CODES,
  TOO_LONG_MESSAGES,
  UNKNOWN_MODEL_MESSAGE,
  UNSUPPORTED_MESSAGE,
} from "./openai-variants.ts";

/** Time for which an endpoint is not used after its account ran out of money. Waiting seconds does not help. */
export const QUOTA_EXHAUSTED_RETRY_MS = 600_000;

/** Returns the failure for a response with an error status. */
export function failureOfStatus(
  status: number,
  headers: ResponseHeaders,
  text: string,
  context: FailureContext,
): ProviderFailure {
  const errorBody = parseErrorText(text);
  const waitMs = retryAfterMs(headers, context.nowMs);
  return failureOf(status, errorBody, waitMs, context);
}

/**
 * Returns the failure in a body with status 200: `{"error": …}` or `{"object": "error", …}` in place of choices.
 * Undefined if the body is a different one.
 */
export function failureInside(body: unknown, context: FailureContext): ProviderFailure | undefined {
  if (typeof body !== "object" || body === null) return undefined;
  const { error, choices, object } = body as Record<string, unknown>;
  if (Array.isArray(choices) && choices.length > 0) return undefined;
  if (!error && object !== "error") return undefined;
  return failureOfErrorBody(body, context);
}

/**
 * Returns the failure that a body or an event reports under a success status. Its status is the one in the body, else
 * one derived from its code, else 502.
 */
export function failureOfErrorBody(body: unknown, context: FailureContext): ProviderFailure {
  const errorBody = parseErrorBody(body);
  return failureOf(errorBody.status ?? statusOfCodes(errorBody), errorBody, undefined, context);
}

function statusOfCodes({ codes }: ProviderErrorBody): number {
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
  errorBody: ProviderErrorBody,
  headerWaitMs: number | undefined,
  context: FailureContext,
): ProviderFailure {
  const kind = kindOf(status, errorBody);
  const failure = {
    kind,
    message: errorBody.message,
    param: errorBody.param,
    retryAfterMs: waitOf(kind, errorBody, headerWaitMs),
    isTooLong: kind === "rejected" && isTooLongError(errorBody),
  };
  return statusFailure(status, failure, context);
}

function kindOf(status: number, errorBody: ProviderErrorBody): ProviderFailureKind {
  if (status === 400 || status === 403 || status === 422) {
    if (errorBody.moderated) return "content_policy";
    if (errorBody.codes.some((code) => CONTENT_POLICY_CODES.has(code))) return "content_policy";
    if (errorBody.codes.some((code) => MISCONFIGURED_CODES.has(code))) return "misconfigured";
    const { message = "" } = errorBody;
    if (KEY_FAULT_MESSAGE.test(message) || UNKNOWN_MODEL_MESSAGE.test(message))
      return "misconfigured";
  }
  // Groq's code for more tokens in one request than the account can send in a minute.
  if (status === 413 && errorBody.codes.includes("rate_limit_exceeded")) return "rate_limited";
  if (status === 404 && UNSUPPORTED_MESSAGE.test(errorBody.message ?? "")) return "rejected";
  return kindOfStatus(status);
}

function waitOf(
  kind: ProviderFailureKind,
  errorBody: ProviderErrorBody,
  headerWaitMs: number | undefined,
): number | undefined {
  if (kind === "rate_limited" && errorBody.codes.includes("insufficient_quota")) {
    return QUOTA_EXHAUSTED_RETRY_MS;
  }
  if (headerWaitMs !== undefined) return headerWaitMs;
  return errorBody.retryAfterMs === undefined ? undefined : boundedWaitMs(errorBody.retryAfterMs);
}

/** A provider's error, parsed from the forms that servers with OpenAI's API are known to send. */
interface ProviderErrorBody {
  readonly message: string | undefined;
  readonly param: string | null;
  /** Names of the failure: code, type and status words, in lower case. */
  readonly codes: readonly string[];
  /** An HTTP status in the body itself. */
  readonly status: number | undefined;
  /** Google's RetryInfo, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** True if the error reports a moderation decision. */
  readonly moderated: boolean;
}

const NO_ERROR_BODY: ProviderErrorBody = {
  message: undefined,
  param: null,
  codes: [],
  status: undefined,
  retryAfterMs: undefined,
  moderated: false,
};

type Fields = Readonly<Record<string, unknown>>;

/** Parses an error from the text of a response. Returns NO_ERROR_BODY if the text is not JSON. */
function parseErrorText(text: string): ProviderErrorBody {
  const body = jsonValue(text);
  return body === undefined ? NO_ERROR_BODY : parseErrorBody(body);
}

/**
 * Parses an error body. Known forms:
 * - OpenAI: `{error: {message, type, param, code}}`
 * - Google: a list of one such object
 * - xAI: `{error: "…", code}`
 * - Mistral: `{message, type, code}`
 * - FastAPI servers: `{detail: …}`; fal has the kind in an issue's `type`
 * - Stability AI: `{name, errors: ["…"]}`
 */
export function parseErrorBody(body: unknown): ProviderErrorBody {
  const outer = asFields(Array.isArray(body) ? body[0] : body);
  if (outer === undefined) return NO_ERROR_BODY;
  const error = asFields(outer.error) ?? outer;
  const metadata = asFields(error.metadata);
  const issue = firstIssue(error.detail) ?? firstIssue(asFields(error.message)?.detail);
  const status = statusIn(error.code) ?? statusIn(error.status);
  return {
    message:
      asText(outer.error) ??
      joinedMessage(asText(error.message), asText(metadata?.raw)) ??
      asText(error.detail) ??
      issue?.message ??
      asText(Array.isArray(outer.errors) ? outer.errors[0] : undefined),
    param: asText(error.param)?.slice(0, 200) ?? issue?.param ?? null,
    codes: codesOf(outer, error),
    status,
    retryAfterMs: retryInfoMs(error.details),
    moderated: metadata !== undefined && "flagged_input" in metadata,
  };
}

function codesOf(outer: Fields, error: Fields): string[] {
  const inner = asFields(error.innererror) ?? asFields(error.inner_error);
  const issue = asFields(Array.isArray(error.detail) ? error.detail[0] : undefined);
  return [error.code, error.type, error.status, outer.code, inner?.code, issue?.type, outer.name]
    .filter((code) => typeof code === "string")
    .map((code) => code.toLowerCase());
}

/** OpenRouter's own message is "Provider returned error". The provider's message is in another member. */
function joinedMessage(message: string | undefined, raw: string | undefined): string | undefined {
  if (message === undefined) return raw;
  return raw === undefined ? message : `${message}: ${raw}`;
}

/** Returns the first entry of a pydantic validation error: `[{loc: ["body", "n"], msg}]`. */
function firstIssue(detail: unknown): { message: string; param: string | null } | undefined {
  const issue = asFields(Array.isArray(detail) ? detail[0] : undefined);
  const message = asText(issue?.msg);
  if (issue === undefined || message === undefined) return undefined;
  if (!Array.isArray(issue.loc)) return { message, param: null };
  const path = issue.loc.filter((part) => typeof part === "string" || typeof part === "number");
  const param = (path[0] === "body" ? path.slice(1) : path).join(".").slice(0, 200);
  return param === "" ? { message, param: null } : { message: `${param}: ${message}`, param };
}

/** Returns the delay in `details: [{"@type": "…google.rpc.RetryInfo", retryDelay: "34.4s"}]`, in milliseconds. */
function retryInfoMs(details: unknown): number | undefined {
  if (!Array.isArray(details)) return undefined;
  for (const detail of details) {
    const delay = asText(asFields(detail)?.retryDelay);
    const seconds = delay === undefined ? null : /^(\d{1,9}(?:\.\d{1,9})?)s$/.exec(delay);
    if (seconds !== null) return Number(seconds[1]) * 1000;
  }
  return undefined;
}

function statusIn(value: unknown): number | undefined {
  const status = typeof value === "string" && /^\d{3}$/.test(value) ? Number(value) : value;
  return typeof status === "number" && Number.isInteger(status) && status >= 400 && status < 600
    ? status
    : undefined;
}

function asFields(value: unknown): Fields | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Fields)
    : undefined;
}

function asText(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** Returns true if prompt and answer exceed the model's context. Agents then shorten the prompt. */
function isTooLongError({ codes, message }: ProviderErrorBody): boolean {
  return codes.some((code) => TOO_LONG_CODES.has(code)) || TOO_LONG_MESSAGES.test(message ?? "");
}
