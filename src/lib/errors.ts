/**
 * The errors that callers can see. Each is a GatewayError with a code of the error table, a public text, and a
 * private cause that only logs show. `src/http/error-response.ts` maps the code to a status and a type.
 */
export type ErrorCode =
  | "invalid_body"
  | "invalid_json"
  | "invalid_query"
  | "invalid_header"
  | "invalid_signature"
  | "invalid_jsonl"
  | "invalid_provider_key"
  | "previous_response_not_found"
  | "content_policy_violation"
  | "unsupported_parameter"
  | "unsupported_model"
  | "vector_store_expired"
  | "mcp_server_failed"
  | "response_not_cancellable"
  | "provider_rejected"
  | "context_length_exceeded"
  | "missing_api_key"
  | "invalid_api_key"
  | "key_inactive"
  | "key_expired"
  | "no_session"
  | "insufficient_credits"
  | "budget_exhausted"
  | "payment_declined"
  | "payment_disputed"
  | "missing_scope"
  | "model_not_allowed"
  | "tool_not_allowed"
  | "wrong_key_kind"
  | "key_not_permitted"
  | "quota_exceeded"
  | "organization_suspended"
  | "cross_origin"
  | "invalid_csrf_token"
  | "model_not_found"
  | "key_not_found"
  | "budget_not_found"
  | "team_not_found"
  | "member_not_found"
  | "invitation_not_found"
  | "link_expired"
  | "identity_provider_not_found"
  | "role_not_permitted"
  | "last_owner"
  | "invalid_credentials"
  | "second_factor_required"
  | "file_not_found"
  | "media_not_found"
  | "organization_not_found"
  | "transaction_not_found"
  | "statement_not_found"
  | "job_not_found"
  | "webhook_not_found"
  | "alert_channel_not_found"
  | "delivery_not_found"
  | "provider_key_not_found"
  | "provider_not_found"
  | "alias_not_found"
  | "price_not_found"
  | "preset_not_found"
  | "guardrail_not_found"
  | "vector_store_not_found"
  | "vector_store_batch_not_found"
  | "batch_not_found"
  | "batch_not_cancellable"
  | "response_not_found"
  | "conversation_not_found"
  | "request_not_found"
  | "payment_method_not_found"
  | "payment_not_found"
  | "item_not_found"
  | "route_not_found"
  | "method_not_allowed"
  | "websocket_unsupported"
  | "provider_timeout"
  | "name_taken"
  | "guardrail_in_use"
  | "version_conflict"
  | "read_only"
  | "in_use"
  | "idempotency_conflict"
  | "job_not_cancellable"
  | "subscription_changing"
  | "payload_too_large"
  | "input_too_long"
  | "unsupported_media_type"
  | "range_not_satisfiable"
  | "precondition_failed"
  | "rate_limit_exceeded"
  | "request_exceeds_rate_limit"
  | "too_many_background_responses"
  | "client_closed_request"
  | "internal"
  | "provider_error"
  | "overloaded"
  | "no_provider_available"
  | "moderation_unavailable"
  | "database_unavailable";

export interface ErrorDetails {
  /** The field, header or query parameter at fault. */
  readonly param?: string | null;
  /** Whole seconds for a Retry-After header, at least 1. */
  readonly retryAfterSeconds?: number;
  /** Private: logged, never sent. */
  readonly cause?: unknown;
  /** Further response headers, such as the rate limit's. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Further members of the error object in the response. */
  readonly fields?: Readonly<Record<string, unknown>>;
}

export class GatewayError extends Error {
  readonly code: ErrorCode;
  readonly param: string | null;
  readonly retryAfterSeconds: number | undefined;
  readonly headers: Readonly<Record<string, string>> | undefined;
  readonly fields: Readonly<Record<string, unknown>> | undefined;

  constructor(code: ErrorCode, publicMessage: string, details: ErrorDetails = {}) {
    super(publicMessage, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = "GatewayError";
    this.code = code;
    this.param = details.param ?? null;
    this.retryAfterSeconds =
      details.retryAfterSeconds === undefined
        ? undefined
        : Math.max(1, Math.ceil(details.retryAfterSeconds));
    this.headers = details.headers;
    this.fields = details.fields;
  }
}

/** Codes of failures after which another attempt of a paid call can succeed. */
export const RETRYABLE_CODES: readonly ErrorCode[] = [
  "rate_limit_exceeded",
  "provider_error",
  "provider_timeout",
  "no_provider_available",
  "moderation_unavailable",
  "overloaded",
  "database_unavailable",
  "idempotency_conflict",
  "client_closed_request",
  "internal",
];

/** Returns the error for a client that disconnected before its answer was complete. */
export function clientClosed(cause?: unknown): GatewayError {
  return new GatewayError("client_closed_request", "The client closed the connection.", { cause });
}

/**
 * Returns the error for a request body that arrives too slowly. The connection is closed, and the rest of the
 * body is not read.
 */
export function bodyTooSlow(): GatewayError {
  return new GatewayError("client_closed_request", "The request body arrives too slowly.", {
    headers: { connection: "close" },
  });
}

/**
 * Returns the error for a request that the shutdown of the gateway ends. Another instance can serve the request.
 */
export function stopping(): GatewayError {
  return new GatewayError("overloaded", "The gateway is stopping.", { retryAfterSeconds: 1 });
}

/** Returns the error for a request for which there is no room now. A retry in a second or two can succeed. */
export function overloaded(message: string, retryAfterSeconds = 1): GatewayError {
  return new GatewayError("overloaded", message, { retryAfterSeconds });
}
