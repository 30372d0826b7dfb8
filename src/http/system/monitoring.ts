import { createHash, timingSafeEqual } from "node:crypto";
import Type from "typebox";
import { version } from "../../../package.json";
import { type Clock, systemClock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import { redactText } from "../../platform/telemetry/redact.ts";
import { errorEnvelope } from "../error-response.ts";
import { isLoopbackHost } from "../request-headers.ts";
import type { RouteDefinition } from "../route.ts";

export interface Readiness {
  readonly ok: boolean;
  /** The checks by name. The value is "ok" or describes the problem. */
  readonly checks: Readonly<Record<string, string>>;
}

interface HealthDependencies {
  isReady(): Promise<Readiness>;
  readonly clock?: Clock;
}

/**
 * The probe of an orchestrator times out after a second or more. A check that hangs must not take
 * much longer.
 */
const READY_WITHIN_MS = 2000;

/** Returns the routes for liveness and readiness. */
export function healthRoutes(dependencies: HealthDependencies): RouteDefinition[] {
  return [aliveRoute(), readyRoute(dependencies)];
}

function aliveRoute(): RouteDefinition {
  return {
    method: "GET",
    path: "/healthz",
    tag: "Operation",
    operationId: "healthz.retrieve",
    summary: "Liveness",
    access: { kind: "public" },
    responses: {
      200: {
        description: "The process is alive.",
        schema: Type.Object({
          status: Type.Literal("ok"),
          version: Type.String({ description: "Version of the gateway.", examples: [version] }),
        }),
      },
    },
    handle: () => uncached({ status: "ok", version }, 200),
  };
}

function readyRoute(dependencies: HealthDependencies): RouteDefinition {
  return {
    method: "GET",
    path: "/readyz",
    tag: "Operation",
    operationId: "readyz.retrieve",
    summary: "Readiness",
    access: { kind: "public" },
    responses: {
      200: {
        description: "Requests can be served.",
        schema: Type.Object({
          status: Type.Literal("ok"),
          checks: Type.Record(Type.String(), Type.String()),
        }),
      },
      503: { description: "Not ready; `checks` next to the error says what fails." },
    },
    async handle({ requestId, log }) {
      const { ok, checks } = await readiness(dependencies);
      if (ok) return uncached({ status: "ok", checks }, 200);
      const error = new GatewayError("overloaded", notReadyMessage(checks));
      log.errorCode = error.code;
      return uncached({ ...errorEnvelope(error, requestId), status: "not ready", checks }, 503);
    },
  };
}

/** Runs the readiness checks. Never rejects: a check that fails or hangs means not ready. */
async function readiness({ isReady, clock = systemClock }: HealthDependencies): Promise<Readiness> {
  const { promise: tooLate, resolve } = Promise.withResolvers<Readiness>();
  const cancel = clock.after(READY_WITHIN_MS, () =>
    resolve({ ok: false, checks: { readiness: `no answer within ${READY_WITHIN_MS} ms` } }),
  );
  try {
    const { ok, checks } = await Promise.race([isReady(), tooLate]);
    const clean = Object.entries(checks).map(([name, state]) => [name, redactText(state)] as const);
    return { ok, checks: Object.fromEntries(clean) };
  } catch {
    return { ok: false, checks: { readiness: "the check failed" } };
  } finally {
    cancel();
  }
}

function notReadyMessage(checks: Readonly<Record<string, string>>): string {
  const failed = Object.entries(checks).filter(([, state]) => state !== "ok");
  return `Not ready: ${failed.map(([name, state]) => `${name} ${state}`).join("; ")}.`;
}

function uncached(body: object, status: number): Response {
  return Response.json(body, { status, headers: { "cache-control": "no-store" } });
}

interface MetricsDependencies {
  readonly telemetry: Pick<Telemetry, "metrics" | "metricsContentType">;
  /** The bearer token of GATEWAY_METRICS_TOKEN. */
  readonly token?: string;
  /** True if only this machine can reach the gateway's address. */
  readonly isLoopback: boolean;
}

const BEARER = /^Bearer +([\x21-\x7e]{1,4096})$/i;

/** Headers that show that a proxy on this machine forwards a request from outside. */
const FORWARDING_HEADERS = ["forwarded", "via", "x-real-ip"];
const FORWARDING_PREFIX = "x-forwarded-";

/**
 * Returns the route for metrics. It serves holders of the token or, if no token is set, this
 * machine only.
 */
export function metricsRoutes(dependencies: MetricsDependencies): RouteDefinition[] {
  const { telemetry, token, isLoopback } = dependencies;
  const tokenDigest = token === undefined ? undefined : digest(token);
  return [
    {
      method: "GET",
      path: "/metrics",
      tag: "Operation",
      operationId: "metrics.retrieve",
      summary: "Metrics",
      access: { kind: "public" },
      responses: {
        200: {
          description: "All metrics in the Prometheus text format.",
          contentType: "text/plain",
        },
        401: { description: "The metrics token is missing or wrong." },
        404: {
          description:
            "No metrics token is set, and the request comes from another machine or through a proxy.",
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
  // Digests have equal lengths, so the time of the comparison does not reveal the length of the
  // token.
  if (given === undefined || !timingSafeEqual(digest(given), expected)) {
    throw new GatewayError("invalid_api_key", "The metrics token is wrong.");
  }
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function isFromThisMachine({ headers }: Request): boolean {
  if (!isLoopbackHost(headers)) return false;
  if (FORWARDING_HEADERS.some((name) => headers.has(name))) return false;
  for (const name of headers.keys()) if (name.startsWith(FORWARDING_PREFIX)) return false;
  return true;
}

/**
 * Returns a 404 as for an unknown route, so that a stranger learns nothing. The message tells an
 * operator the remedy.
 */
function notServed(): GatewayError {
  return new GatewayError(
    "route_not_found",
    "Metrics are not served here: set GATEWAY_METRICS_TOKEN, or request them from this machine's loopback address without a proxy.",
  );
}
