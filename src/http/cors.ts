/**
 * Request headers that browsers may send across origins (Fetch Standard, CORS protocol). API keys
 * are sent in a header and never in a cookie, so credentials are not allowed.
 */
const ALLOWED_HEADERS =
  "authorization, content-type, idempotency-key, last-event-id, accept, range, if-range, if-none-match";
/** The header names that a preflight lists. SDKs add about a dozen. */
const HEADER_NAMES = /^[\w!#$%&'*+.^`|~,\s-]{1,4096}$/;
const EXPOSED_HEADERS = [
  "x-gateway-request-id",
  "x-request-id",
  "request-id",
  "x-gateway-provider",
  "x-gateway-model",
  "x-gateway-cost",
  "x-gateway-latency-ms",
  "x-gateway-max-tokens",
  "x-gateway-idempotent-replay",
  "x-gateway-route-explain",
  "x-gateway-dropped-parameters",
  "x-gateway-cache",
  "x-gateway-cache-key",
  "x-gateway-cache-savings",
  "x-ratelimit-limit",
  "x-ratelimit-remaining",
  "x-ratelimit-reset",
  "x-ratelimit-limit-requests",
  "x-ratelimit-remaining-requests",
  "x-ratelimit-reset-requests",
  "openai-processing-ms",
  "x-ratelimit-limit-tokens",
  "x-ratelimit-remaining-tokens",
  "x-ratelimit-reset-tokens",
  "retry-after",
  "x-should-retry",
  "content-disposition",
  "content-range",
  "etag",
].join(", ");
const PREFLIGHT_SECONDS = "600";

export interface Cors {
  /** Adds the headers that let pages of an allowed origin read the response. */
  allow(request: Request, response: Response): Response;
  /** Returns the response to a preflight request. */
  preflight(request: Request, methods: readonly string[]): Response;
}

/** Returns undefined if no origin is allowed. A single `*` allows every origin. */
export function createCors(origins: readonly string[]): Cors | undefined {
  if (origins.length === 0) return undefined;
  const allowed = (request: Request): string | undefined => {
    const origin = request.headers.get("origin");
    if (origin === null) return undefined;
    if (origins[0] === "*") return "*";
    return origins.includes(origin) ? origin : undefined;
  };
  const allow = (request: Request, response: Response): Response => {
    response.headers.append("vary", "origin");
    const origin = allowed(request);
    if (origin === undefined) return response;
    response.headers.set("access-control-allow-origin", origin);
    response.headers.set("access-control-expose-headers", EXPOSED_HEADERS);
    return response;
  };
  return {
    allow,
    preflight(request, methods) {
      const response = allow(request, new Response(null, { status: 204 }));
      if (allowed(request) === undefined) return response;
      response.headers.append("vary", "access-control-request-headers");
      response.headers.set("access-control-allow-methods", methods.join(", "));
      // An allowed origin may send every header. The gateway ignores unknown headers.
      const requestedHeaders = request.headers.get("access-control-request-headers") ?? "";
      response.headers.set(
        "access-control-allow-headers",
        HEADER_NAMES.test(requestedHeaders) ? requestedHeaders : ALLOWED_HEADERS,
      );
      response.headers.set("access-control-max-age", PREFLIGHT_SECONDS);
      return response;
    },
  };
}
