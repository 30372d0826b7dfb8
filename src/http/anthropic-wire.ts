import { GatewayError } from "../lib/errors.ts";
import { type ClientWire, ERROR_TABLE } from "./error-response.ts";

/**
 * Error types by status (https://platform.claude.com/docs/en/api/errors). Other statuses get the
 * type of their class.
 */
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

/** The status with which Anthropic reports an overload. */
const OVERLOADED = 529;

/** The error envelope and the request id header that clients of Anthropic's API expect. */
export const anthropicWire: ClientWire = {
  requestIdHeader: "request-id",
  errorOf(error) {
    if (providerStatus(error) !== OVERLOADED) return error;
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
    // `param` and `code` are additions of the gateway. `fields` can contain `details`.
    return {
      type: "error",
      error: { type, message, param, code, ...fields },
      request_id: requestId,
    };
  },
};

/** Returns the status that the provider answered with, or undefined if it is unknown. */
function providerStatus(error: GatewayError): unknown {
  if (error.code !== "provider_error") return undefined;
  let cause: unknown = error.cause;
  while (cause instanceof Error) {
    if ("status" in cause && cause.status !== undefined) return cause.status;
    cause = cause.cause;
  }
  return undefined;
}
