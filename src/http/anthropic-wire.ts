import { GatewayError } from "../lib/errors.ts";
import { type ClientWire, ERROR_TABLE } from "./error-response.ts";

/** https://platform.claude.com/docs/en/api/errors: the types by status. Others have that of the status class. */
const TYPES: Readonly<Record<number, string>> = {
  401: "authentication_error",
  402: "billing_error",
  403: "permission_error",
  404: "not_found_error",
  408: "timeout_error",
  413: "request_too_large",
  429: "rate_limit_error",
  503: "overloaded_error",
};

/** Anthropic's own status of an overload. */
const OVERLOADED = 529;

/** What clients of Anthropic's API read: its envelope of errors, and the header with the request's id. */
export const anthropicWire: ClientWire = {
  requestIdHeader: "request-id",
  errorOf(error) {
    if (statusBehind(error) !== OVERLOADED) return error;
    const { message, cause, headers } = error;
    const retryAfterSeconds = error.retryAfterSeconds ?? 1;
    return new GatewayError("overloaded", message, {
      cause,
      retryAfterSeconds,
      ...(headers !== undefined && { headers }),
    });
  },
  envelope(error, requestId) {
    const { status } = ERROR_TABLE[error.code];
    const type = TYPES[status] ?? (status < 500 ? "invalid_request_error" : "api_error");
    const { message, param, code, fields } = error;
    // `param` and `code` are the gateway's own. `details`, if there are any, are among the fields.
    return {
      type: "error",
      error: { type, message, param, code, ...fields },
      request_id: requestId,
    };
  },
};

/** The status that a provider failed with, where that is known. */
function statusBehind(error: GatewayError): unknown {
  if (error.code !== "provider_error") return undefined;
  let cause: unknown = error.cause;
  while (cause instanceof Error) {
    if ("status" in cause && cause.status !== undefined) return cause.status;
    cause = cause.cause;
  }
  return undefined;
}
