import Type from "typebox";
import { errorEnvelope } from "../http/error-response.ts";
import type { RouteDefinition } from "../http/route.ts";
import { type Clock, systemClock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import { redactText } from "../telemetry/redact.ts";

export interface Readiness {
  readonly ok: boolean;
  /** Each thing that was looked at, with "ok" or what is wrong with it. */
  readonly checks: Readonly<Record<string, string>>;
}

export interface HealthDependencies {
  isReady(): Promise<Readiness>;
  readonly clock?: Clock;
}

/** An orchestrator's probe gives up after a second or more; a hanging check must not outlast it by much. */
const READY_WITHIN_MS = 2000;

/** Whether the process lives, and whether it can serve. */
export function healthRoutes(dependencies: HealthDependencies): RouteDefinition[] {
  return [aliveRoute(), readyRoute(dependencies)];
}

function aliveRoute(): RouteDefinition {
  return {
    method: "GET",
    path: "/healthz",
    tag: "Operation",
    summary: "Liveness",
    access: { kind: "public" },
    responses: {
      200: {
        description: "The process is alive.",
        schema: Type.Object({ status: Type.Literal("ok") }),
      },
    },
    handle: () => uncached({ status: "ok" }, 200),
  };
}

function readyRoute(dependencies: HealthDependencies): RouteDefinition {
  return {
    method: "GET",
    path: "/readyz",
    tag: "Operation",
    summary: "Readiness",
    access: { kind: "public" },
    responses: {
      200: {
        description: "Requests can be served.",
        schema: Type.Object(
          { status: Type.Literal("ok"), checks: Type.Record(Type.String(), Type.String()) },
          { examples: [{ status: "ok", checks: { database: "ok" } }] },
        ),
      },
      503: { description: "Not ready; `checks` beside the error says what is wrong" },
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

/** Never rejects: a check that fails or hangs is an answer too. */
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
