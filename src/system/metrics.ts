import { createHash, timingSafeEqual } from "node:crypto";
import type { RouteDefinition } from "../http/route.ts";
import { GatewayError } from "../lib/errors.ts";
import type { Telemetry } from "../telemetry/interface.ts";

export interface MetricsDependencies {
  readonly telemetry: Pick<Telemetry, "metrics" | "metricsContentType">;
  /** GATEWAY_METRICS_TOKEN */
  readonly token?: string;
  /** Whether only this machine can reach the gateway's address. */
  readonly isLoopback: boolean;
}

const BEARER = /^Bearer +([\x21-\x7e]{1,4096})$/i;

/** `localhost`, 127.0.0.0/8 and ::1 as a Host header spells them, with a port or without. */
const LOOPBACK_HOST = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;
/** A proxy on this machine passes on what the outside asks: each of these tells of one. */
const FORWARDING_HEADERS = ["forwarded", "via", "x-real-ip"];
const FORWARDING_PREFIX = "x-forwarded-";

/** Serves metrics to holders of the token or, where none is set, to this machine alone. */
export function metricsRoutes(dependencies: MetricsDependencies): RouteDefinition[] {
  const { telemetry, token, isLoopback } = dependencies;
  const tokenDigest = token === undefined ? undefined : digest(token);
  return [
    {
      method: "GET",
      path: "/metrics",
      tag: "Operation",
      summary: "Metrics",
      access: { kind: "public" },
      responses: {
        200: {
          description: "Everything that is measured, in Prometheus' text format.",
          contentType: "text/plain",
        },
        401: { description: "The metrics token is missing or wrong" },
        404: {
          description:
            "No metrics token is set, and the address or the Host is none of loopback, or a proxy forwarded the request",
        },
      },
      async handle({ request }) {
        if (tokenDigest !== undefined) assertToken(request, tokenDigest);
        else if (!isLoopback || !isFromThisMachine(request)) throw notServed();
        return new Response(await telemetry.metrics(), {
          headers: { "content-type": telemetry.metricsContentType, "cache-control": "no-store" },
        });
      },
    },
  ];
}

function assertToken(request: Request, expected: Buffer): void {
  const header = request.headers.get("authorization");
  if (header === null) {
    throw new GatewayError("missing_api_key", "Metrics need the metrics token as a bearer token.");
  }
  const [, given] = BEARER.exec(header) ?? [];
  // Digests have one length, so that not even the token's length shows in the time.
  if (given === undefined || !timingSafeEqual(digest(given), expected)) {
    throw new GatewayError("invalid_api_key", "The metrics token is wrong.");
  }
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function isFromThisMachine({ headers }: Request): boolean {
  if (!LOOPBACK_HOST.test(headers.get("host") ?? "")) return false;
  if (FORWARDING_HEADERS.some((name) => headers.has(name))) return false;
  for (const name of headers.keys()) if (name.startsWith(FORWARDING_PREFIX)) return false;
  return true;
}

/** As if there were no such route, but for its message: a stranger learns nothing, an operator the remedy. */
function notServed(): GatewayError {
  return new GatewayError(
    "route_not_found",
    "Metrics are not served here: set GATEWAY_METRICS_TOKEN, or ask this machine's loopback address without a proxy.",
  );
}
