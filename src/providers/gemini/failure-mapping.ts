import { isFields, jsonValue } from "../../lib/json.ts";
import { boundedWaitMs, retryAfterMs } from "../../lib/retry-after.ts";
import type { ProviderFailure, ProviderFailureKind } from "../interface.ts";
import { type FailureContext, kindOfStatus, statusFailure } from "../transport/status-failure.ts";

type Fields = Readonly<Record<string, unknown>>;

/** https://cloud.google.com/apis/design/errors: `{error: {code, message, status, details}}`. */
interface Complaint {
  readonly code: number | undefined;
  readonly message: string | undefined;
  /** Such as INVALID_ARGUMENT. */
  readonly status: string | undefined;
  /** Of ErrorInfo, such as API_KEY_INVALID. */
  readonly reason: string | undefined;
  /** Of RetryInfo. */
  readonly retryAfterMs: number | undefined;
}

/** "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)." */
const TOO_LONG = /token count .{0,40}exceeds the maximum/i;
/** The account's country or billing is at fault, not the request. */
const OF_ACCOUNT = "FAILED_PRECONDITION";
const KEY_REASON = /^API_KEY_/;
const KEY_MESSAGE = /\bapi[ _-]key (?:not valid|not found|expired)/i;

/** The failure for a response with an error status. */
export function failureOfStatus(
  status: number,
  headers: { get(name: string): string | null },
  text: string,
  context: FailureContext,
): ProviderFailure {
  const complaint = parseErrorBody(jsonValue(text));
  return failureOf(status, complaint, retryAfterMs(headers, context.nowMs), context);
}

/** The failure inside a body or event that came with a success status; undefined if it has none. */
export function failureInside(body: unknown, context: FailureContext): ProviderFailure | undefined {
  const outer: unknown = Array.isArray(body) ? body[0] : body;
  if (!isFields(outer) || !isFields(outer.error)) return undefined;
  const complaint = parseErrorBody(outer);
  return failureOf(complaint.code ?? 502, complaint, undefined, context);
}

function failureOf(
  status: number,
  complaint: Complaint,
  headerWaitMs: number | undefined,
  context: FailureContext,
): ProviderFailure {
  const kind = kindOf(status, complaint);
  const waitMs = headerWaitMs ?? complaint.retryAfterMs;
  return statusFailure(
    status,
    {
      kind,
      message: complaint.message,
      retryAfterMs: waitMs === undefined ? undefined : boundedWaitMs(waitMs),
      isTooLong: kind === "rejected" && TOO_LONG.test(complaint.message ?? ""),
    },
    context,
  );
}

function kindOf(status: number, complaint: Complaint): ProviderFailureKind {
  const { reason = "", message = "" } = complaint;
  if (status === 400) {
    if (complaint.status === OF_ACCOUNT) return "misconfigured";
    if (KEY_REASON.test(reason) || KEY_MESSAGE.test(message)) return "misconfigured";
  }
  return kindOfStatus(status);
}

function parseErrorBody(body: unknown): Complaint {
  const outer: unknown = Array.isArray(body) ? body[0] : body;
  const error: Fields = isFields(outer) && isFields(outer.error) ? outer.error : {};
  const details = Array.isArray(error.details) ? error.details.filter(isFields) : [];
  const { code } = error;
  return {
    code: Number.isInteger(code) && (code as number) >= 400 ? (code as number) : undefined,
    message: textOf(error.message),
    status: textOf(error.status),
    reason: details.map(({ reason }) => textOf(reason)).find((one) => one !== undefined),
    retryAfterMs: details.map(({ retryDelay }) => delayMs(retryDelay)).find((one) => one),
  };
}

/** A duration of protobuf, such as "34.4s", in milliseconds. */
function delayMs(delay: unknown): number | undefined {
  const seconds = /^(\d{1,9}(?:\.\d{1,9})?)s$/.exec(textOf(delay) ?? "");
  return seconds === null ? undefined : Number(seconds[1]) * 1_000;
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
