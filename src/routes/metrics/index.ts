import { createHash, timingSafeEqual } from "node:crypto";
import type { RouteDefinition } from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { Telemetry } from "../../telemetry/interface.ts";

export interface MetricsDependencies {
  readonly telemetry: Pick<Telemetry, "metrics" | "metricsContentType">;
  /** GATEWAY_METRICS_TOKEN */
  readonly token?: string;
  /** Whether only this machine can reach the gateway's address. */
  readonly isLoopback: boolean;
}

const BEARER = /^Bearer +([\x21-\x7e]{1,4096})$/i;

/** Metrics as Prometheus reads them, for who has the token or, without one, for this machine alone. */
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
        404: { description: "No metrics token is set, and the address is not a loopback address" },
      },
      async handle({ request }) {
        if (tokenDigest !== undefined) assertToken(request, tokenDigest);
        else if (!isLoopback) throw notServed();
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

/** As if there were no such route, but for its message: a stranger learns nothing, an operator the remedy. */
function notServed(): GatewayError {
  return new GatewayError(
    "route_not_found",
    "Metrics are not served here: set GATEWAY_METRICS_TOKEN, or listen on a loopback address.",
  );
}
