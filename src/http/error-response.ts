import { asUnavailable } from "../../db/unavailable.ts";
import { GatewayError } from "../lib/errors.ts";
import { ERROR_TABLE } from "./error-table.ts";

export interface ErrorEnvelope {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string;
  };
  readonly request_id: string;
}

/** Whatever was thrown, as an error that may be shown: what is not meant for the caller becomes a 500. */
export function asGatewayError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const unavailable = asUnavailable(error);
  if (unavailable !== undefined) return unavailable;
  return new GatewayError("internal", "Something went wrong inside the gateway.", { cause: error });
}

/**
 * Whether an error is a fault of the gateway, or of what it depends on, that somebody has to look at. A
 * bound that refuses does what it is there for; where something failed behind it, that is its cause.
 */
export function isFault(error: GatewayError): boolean {
  const isBound = error.code === "overloaded" && error.cause === undefined;
  return ERROR_TABLE[error.code].status >= 500 && !isBound;
}

export function errorEnvelope(error: GatewayError, requestId: string): ErrorEnvelope {
  return {
    error: {
      message: error.message,
      type: ERROR_TABLE[error.code].type,
      param: error.param,
      code: error.code,
    },
    request_id: requestId,
  };
}

export function errorResponse(
  error: GatewayError,
  requestId: string,
  alwaysSent: Readonly<Record<string, string>> = {},
): Response {
  const { status } = ERROR_TABLE[error.code];
  const headers: Record<string, string> = {
    "content-type": "application/json",
    "x-gateway-request-id": requestId,
    "x-request-id": requestId,
    ...alwaysSent,
    ...error.headers,
  };
  if (error.retryAfterSeconds !== undefined)
    headers["retry-after"] = String(error.retryAfterSeconds);
  // SDKs send these again on their own, which cannot help.
  if (status === 408 || status === 409) headers["x-should-retry"] = "false";
  if (status === 401) headers["www-authenticate"] = "Bearer";
  return new Response(JSON.stringify(errorEnvelope(error, requestId)), { status, headers });
}
