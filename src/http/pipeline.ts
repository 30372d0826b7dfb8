import type { CallAdmission } from "../calls/admission.ts";
import type { GatewayError } from "../lib/errors.ts";
import { JSON_LIMITS } from "../lib/json.ts";
import type { RequestRecord } from "../telemetry/interface.ts";
import type { Authentication } from "./authentication.ts";
import type { BodyBudget } from "./body-budget.ts";
import { MAX_JSON_BYTES, MAX_MODEL_JSON_BYTES, STRICT_JSON_LIMITS } from "./check-json.ts";
import type { BodyLimits } from "./read-body.ts";
import { createQueryReader } from "./read-query.ts";
import type { RouteDefinition } from "./route.ts";
import { type Check, createCheck, validatorOf } from "./validate.ts";

/** What the way of every request needs. */
export interface PipelineDependencies {
  readonly authentication: Authentication;
  /** Undefined where requests may be admitted; else a promise of it, which rejects with 503. */
  whenAdmitting(): Promise<void> | undefined;
  /** A key was used for what charges nothing. */
  noteUse(keyId: string): void;
  readonly inFlight: { begin(): void; end(): void; readonly isStopping: boolean };
  /** Throws 503 where calls of models are more than can be served. */
  readonly loadGate: { admit(): void };
  readonly bodies: BodyBudget;
  /** Throws 429 where the organization made too many administrative calls. */
  readonly administrativeRate: { count(organizationId: string): void | Promise<void> };
  readonly admission: Pick<CallAdmission, "admitLongBody">;
  record(request: RequestRecord): void;
  /** Receives faults of the gateway and of its dependencies, with their private causes. */
  onInternalError(error: GatewayError, requestId: string): void;
}

/** A route with its checks, most of which are compiled when they are first needed. */
export interface CompiledRoute {
  readonly definition: RouteDefinition;
  readonly readQuery: (url: string) => Readonly<Record<string, unknown>>;
  readonly checkBody: Check | undefined;
  readonly bodyLimits: BodyLimits;
  readonly dependencies: PipelineDependencies;
}

const NO_PARAMETERS = { type: "object", properties: {}, additionalProperties: false } as never;

/** Makes ready what a route checks of each of its requests; calls of models wait for nothing. */
export function compileRoute(
  definition: RouteDefinition,
  dependencies: PipelineDependencies,
): CompiledRoute {
  const { access, body } = definition;
  if (access.kind === "model" && body !== undefined) validatorOf(body);
  return {
    definition,
    readQuery: createQueryReader(definition.query ?? NO_PARAMETERS),
    checkBody: body && createCheck(body, "invalid_body", "Request body"),
    bodyLimits: {
      bytes: access.kind === "model" ? MAX_MODEL_JSON_BYTES : MAX_JSON_BYTES,
      json: definition.allowsUnknownFields ? JSON_LIMITS : STRICT_JSON_LIMITS,
    },
    dependencies,
  };
}
