import { bodyInPieces } from "../lib/body-pieces.ts";
import type { ErrorCode, GatewayError } from "../lib/errors.ts";

interface ErrorEnvelope {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string;
  };
  readonly request_id: string;
}

/**
 * Returns true if an error is a fault of the gateway or of a dependency that an operator must
 * examine. A reached limit is not a fault, unless a failure caused it (`cause`).
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
      ...error.fields,
    },
    request_id: requestId,
  };
}

/** The error format of a route whose clients use a wire format other than the gateway's. */
export interface ClientWire {
  /** Header with the request id, in addition to the gateway's own headers. */
  readonly requestIdHeader: string;
  /** Media type of errors. Default: application/json. */
  readonly contentType?: string;
  /** Returns the error that this wire format has for the given one. */
  errorOf(error: GatewayError): GatewayError;
  envelope(error: GatewayError, requestId: string): unknown;
}

export function errorResponse(
  error: GatewayError,
  requestId: string,
  alwaysSent: Readonly<Record<string, string>> = {},
  wire?: ClientWire,
): Response {
  const { status } = ERROR_TABLE[error.code];
  const headers: Record<string, string> = {
    "content-type": wire?.contentType ?? "application/json",
    "x-gateway-request-id": requestId,
    "x-request-id": requestId,
    ...(wire !== undefined && { [wire.requestIdHeader]: requestId }),
    ...alwaysSent,
    ...error.headers,
  };
  if (error.retryAfterSeconds !== undefined)
    headers["retry-after"] = String(error.retryAfterSeconds);
  // SDKs retry these statuses by default, which cannot succeed.
  if (status === 408 || status === 409) headers["x-should-retry"] = "false";
  if (status === 401) headers["www-authenticate"] = "Bearer";
  const envelope = wire?.envelope(error, requestId) ?? errorEnvelope(error, requestId);
  return new Response(JSON.stringify(envelope), { status, headers });
}

type ErrorType =
  | "invalid_request_error"
  | "authentication_error"
  | "billing_error"
  | "permission_error"
  | "not_found_error"
  | "timeout_error"
  | "rate_limit_error"
  | "client_closed_request"
  | "api_error"
  | "provider_error"
  | "overloaded_error";

interface ErrorEntry {
  readonly status: number;
  readonly type: ErrorType;
}

const entry = (status: number, type: ErrorType): ErrorEntry => ({ status, type });

/** Status and type of each error code. No other code assigns statuses to error codes. */
export const ERROR_TABLE: Readonly<Record<ErrorCode, ErrorEntry>> = {
  invalid_body: entry(400, "invalid_request_error"),
  request_exceeds_rate_limit: entry(400, "invalid_request_error"),
  invalid_json: entry(400, "invalid_request_error"),
  invalid_query: entry(400, "invalid_request_error"),
  invalid_header: entry(400, "invalid_request_error"),
  invalid_signature: entry(400, "invalid_request_error"),
  invalid_jsonl: entry(400, "invalid_request_error"),
  invalid_provider_key: entry(400, "invalid_request_error"),
  previous_response_not_found: entry(400, "invalid_request_error"),
  content_policy_violation: entry(400, "invalid_request_error"),
  unsupported_parameter: entry(400, "invalid_request_error"),
  unsupported_model: entry(400, "invalid_request_error"),
  vector_store_expired: entry(400, "invalid_request_error"),
  mcp_server_failed: entry(400, "invalid_request_error"),
  response_not_cancellable: entry(400, "invalid_request_error"),
  provider_rejected: entry(400, "invalid_request_error"),
  context_length_exceeded: entry(400, "invalid_request_error"),
  missing_api_key: entry(401, "authentication_error"),
  invalid_api_key: entry(401, "authentication_error"),
  key_inactive: entry(401, "authentication_error"),
  key_expired: entry(401, "authentication_error"),
  no_session: entry(401, "authentication_error"),
  insufficient_credits: entry(402, "billing_error"),
  budget_exhausted: entry(402, "billing_error"),
  payment_declined: entry(402, "billing_error"),
  payment_disputed: entry(402, "billing_error"),
  missing_scope: entry(403, "permission_error"),
  model_not_allowed: entry(403, "permission_error"),
  tool_not_allowed: entry(403, "permission_error"),
  wrong_key_kind: entry(403, "permission_error"),
  key_not_permitted: entry(403, "permission_error"),
  quota_exceeded: entry(403, "permission_error"),
  organization_suspended: entry(403, "permission_error"),
  cross_origin: entry(403, "permission_error"),
  invalid_csrf_token: entry(403, "permission_error"),
  model_not_found: entry(404, "not_found_error"),
  key_not_found: entry(404, "not_found_error"),
  budget_not_found: entry(404, "not_found_error"),
  team_not_found: entry(404, "not_found_error"),
  member_not_found: entry(404, "not_found_error"),
  invitation_not_found: entry(404, "not_found_error"),
  identity_provider_not_found: entry(404, "not_found_error"),
  link_expired: entry(404, "not_found_error"),
  role_not_permitted: entry(403, "permission_error"),
  last_owner: entry(409, "invalid_request_error"),
  invalid_credentials: entry(401, "authentication_error"),
  second_factor_required: entry(401, "authentication_error"),
  file_not_found: entry(404, "not_found_error"),
  media_not_found: entry(404, "not_found_error"),
  organization_not_found: entry(404, "not_found_error"),
  transaction_not_found: entry(404, "not_found_error"),
  statement_not_found: entry(404, "not_found_error"),
  job_not_found: entry(404, "not_found_error"),
  webhook_not_found: entry(404, "not_found_error"),
  alert_channel_not_found: entry(404, "not_found_error"),
  delivery_not_found: entry(404, "not_found_error"),
  provider_key_not_found: entry(404, "not_found_error"),
  provider_not_found: entry(404, "not_found_error"),
  alias_not_found: entry(404, "not_found_error"),
  price_not_found: entry(404, "not_found_error"),
  preset_not_found: entry(404, "not_found_error"),
  guardrail_not_found: entry(404, "not_found_error"),
  vector_store_not_found: entry(404, "not_found_error"),
  vector_store_batch_not_found: entry(404, "not_found_error"),
  batch_not_found: entry(404, "not_found_error"),
  response_not_found: entry(404, "not_found_error"),
  conversation_not_found: entry(404, "not_found_error"),
  request_not_found: entry(404, "not_found_error"),
  payment_method_not_found: entry(404, "not_found_error"),
  payment_not_found: entry(404, "not_found_error"),
  item_not_found: entry(404, "not_found_error"),
  route_not_found: entry(404, "not_found_error"),
  method_not_allowed: entry(405, "invalid_request_error"),
  websocket_unsupported: entry(426, "invalid_request_error"),
  provider_timeout: entry(408, "timeout_error"),
  name_taken: entry(409, "invalid_request_error"),
  guardrail_in_use: entry(409, "invalid_request_error"),
  version_conflict: entry(409, "invalid_request_error"),
  read_only: entry(409, "invalid_request_error"),
  in_use: entry(409, "invalid_request_error"),
  idempotency_conflict: entry(409, "invalid_request_error"),
  batch_not_cancellable: entry(409, "invalid_request_error"),
  job_not_cancellable: entry(409, "invalid_request_error"),
  subscription_changing: entry(409, "invalid_request_error"),
  precondition_failed: entry(412, "invalid_request_error"),
  payload_too_large: entry(413, "invalid_request_error"),
  input_too_long: entry(413, "invalid_request_error"),
  unsupported_media_type: entry(415, "invalid_request_error"),
  range_not_satisfiable: entry(416, "invalid_request_error"),
  rate_limit_exceeded: entry(429, "rate_limit_error"),
  too_many_background_responses: entry(429, "rate_limit_error"),
  client_closed_request: entry(499, "client_closed_request"),
  internal: entry(500, "api_error"),
  provider_error: entry(502, "provider_error"),
  overloaded: entry(503, "overloaded_error"),
  no_provider_available: entry(503, "provider_error"),
  moderation_unavailable: entry(503, "provider_error"),
  database_unavailable: entry(503, "api_error"),
};

/** Returns a JSON response. The pipeline adds the headers that every response has. */
export function jsonResponse(body: unknown, status = 200): Response {
  return jsonTextResponse(JSON.stringify(body), status);
}

/** Returns a response with a text that is already JSON. */
export function jsonTextResponse(text: string, status = 200): Response {
  return new Response(bodyInPieces(text), {
    status,
    headers: { "content-type": "application/json" },
  });
}
