import { isFields, jsonValue } from "../../lib/json.ts";
import { boundedWaitMs, retryAfterMs } from "../../lib/retry-after.ts";
import type { ProviderFailure, ProviderFailureKind } from "../interface.ts";
import type { ResponseHeaders } from "../transport/provider-response.ts";
import { type FailureContext, kindOfStatus, statusFailure } from "../transport/status-failure.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * An error body of Google's APIs: `{error: {code, message, status, details}}`.
 * https://cloud.google.com/apis/design/errors
 */
interface ErrorDetails {
  readonly code: number | undefined;
  readonly message: string | undefined;
  /** Google's status code by name, such as INVALID_ARGUMENT. */
  readonly status: string | undefined;
  /** The reason in ErrorInfo, such as API_KEY_INVALID. */
  readonly reason: string | undefined;
  /** Milliseconds to wait before a retry, from RetryInfo. */
  readonly retryAfterMs: number | undefined;
}

/** Matches "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)." */
const TOO_LONG = /token count .{0,40}exceeds the maximum/i;
/** Error status if the account's country or billing is at fault. */
const ACCOUNT_FAULT = "FAILED_PRECONDITION";
const KEY_REASON = /^API_KEY_/;
const KEY_MESSAGE = /\bapi[ _-]key (?:not valid|not found|expired)/i;

/** Returns the failure for a response with an error status. */
export function failureOfStatus(
  status: number,
  headers: ResponseHeaders,
  text: string,
  context: FailureContext,
): ProviderFailure {
  const details = parseErrorBody(jsonValue(text));
  return failureOf(status, details, retryAfterMs(headers, context.nowMs), context);
}

/** Returns the failure inside a body or event with a success status. Returns undefined if it has none. */
export function failureInside(body: unknown, context: FailureContext): ProviderFailure | undefined {
  const outer: unknown = Array.isArray(body) ? body[0] : body;
  if (!isFields(outer) || !isFields(outer.error)) return undefined;
  const details = parseErrorBody(outer);
  return failureOf(details.code ?? 502, details, undefined, context);
}

function failureOf(
  status: number,
  details: ErrorDetails,
  headerWaitMs: number | undefined,
  context: FailureContext,
): ProviderFailure {
  const kind = kindOf(status, details);
  const waitMs = headerWaitMs ?? details.retryAfterMs;
  return statusFailure(
    status,
    {
      kind,
      message: details.message,
      retryAfterMs: waitMs === undefined ? undefined : boundedWaitMs(waitMs),
      isTooLong: kind === "rejected" && TOO_LONG.test(details.message ?? ""),
    },
    context,
  );
}

function kindOf(status: number, details: ErrorDetails): ProviderFailureKind {
  const { reason = "", message = "" } = details;
  if (status === 400) {
    if (details.status === ACCOUNT_FAULT) return "misconfigured";
    if (KEY_REASON.test(reason) || KEY_MESSAGE.test(message)) return "misconfigured";
  }
  return kindOfStatus(status);
}

function parseErrorBody(body: unknown): ErrorDetails {
  const outer: unknown = Array.isArray(body) ? body[0] : body;
  const error: Fields = isFields(outer) && isFields(outer.error) ? outer.error : {};
  const details = Array.isArray(error.details) ? error.details.filter(isFields) : [];
  const { code } = error;
  return {
    code: Number.isInteger(code) && (code as number) >= 400 ? (code as number) : undefined,
    message: textOf(error.message),
    status: textOf(error.status),
    reason: details.map(({ reason }) => textOf(reason)).find((text) => text !== undefined),
    retryAfterMs: details.map(({ retryDelay }) => delayMs(retryDelay)).find((ms) => ms),
  };
}

/** Returns a protobuf duration, such as "34.4s", in milliseconds. */
function delayMs(delay: unknown): number | undefined {
  const seconds = /^(\d{1,9}(?:\.\d{1,9})?)s$/.exec(textOf(delay) ?? "");
  return seconds === null ? undefined : Number(seconds[1]) * 1_000;
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
