import { asGatewayError } from "../../../db/unavailable.ts";
import type { Caller } from "../../http/caller.ts";
import { ERROR_TABLE, errorResponse } from "../../http/error-response.ts";
import { MAX_WHOLE_BYTES } from "../../http/read-body.ts";
import type { RequestContext, RouteDefinition } from "../../http/route.ts";
import { createCheck } from "../../http/validate.ts";
import type {
  BatchPhase,
  BatchPreparation,
  BatchSettlement,
  PreparedBatchLine,
} from "../../inference/call/batched-call.ts";
import type { InternalIdempotencyKey } from "../../inference/call/call.ts";
import type { UnwrittenCharge } from "../../inference/call/call-charge.ts";
import type { PaidContext } from "../../inference/endpoints/paid-route.ts";
import { type ApiKeyRecord, holdsScope } from "../../lib/api-key-record.ts";
import { type ErrorCode, GatewayError, RETRYABLE_CODES, stopping } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { loggedFieldsOf, type RequestLifetime } from "../../lib/request-log.ts";
import { sharedCopy } from "../../lib/shared-bytes.ts";
import { yieldToEventLoop } from "../../lib/yield-to-event-loop.ts";
import { type RequestRecord, requestRecord } from "../../platform/telemetry/interface.ts";

export interface LineCallDependencies {
  /** The billed endpoints. */
  readonly routes: readonly RouteDefinition[];
  /** Counts running requests, which a shutdown waits for. */
  readonly inFlight: { begin(): void; end(): void; readonly isStopping: boolean };
  /** Returns the key with its current rights. Rejects if the key can no longer call. */
  usableKey(keyId: string): Promise<ApiKeyRecord>;
  /** Records a request of a batch that has ended, in the same way as a client's request. */
  note(request: RequestRecord): void;
}

export interface CalledLine {
  readonly organizationId: string;
  readonly keyId: string;
  readonly endpoint: string;
  readonly body: unknown;
}

export interface LineRequest extends CalledLine {
  readonly idempotency: InternalIdempotencyKey;
  /** Stores an answer before its charge if it is too large to be stored under the idempotency key. */
  storeLargeResult(answer: LineAnswer): Promise<void>;
}

export interface LineAnswer {
  readonly status: number;
  readonly requestId: string;
  /** JSON in UTF-8. A long text would block the event loop. */
  readonly body: Uint8Array;
  /** True if an earlier call with the idempotency key has already produced this answer. */
  readonly isReplay: boolean;
}

/** A rejected or failed request. */
export interface LineRefusal {
  readonly error: GatewayError;
  /** Returns the error response that a client would have received. */
  answer(): Promise<LineAnswer>;
  /** Records the request as one of the organization's failed requests. Must be called if the failure is final. */
  note(): void;
}

/** The answer of a provider batch. It is charged when its figures are written. */
export interface SettledLine extends LineAnswer {
  readonly charge: UnwrittenCharge;
  /** Records the request. Must be called after the charge. */
  note(): void;
}

const RETRYABLE: ReadonlySet<ErrorCode> = new Set([
  ...RETRYABLE_CODES,
  "too_many_background_responses",
]);
/** Errors that do not concern the request, which waits until they end. */
const GATEWAY_CODES: ReadonlySet<ErrorCode> = new Set([
  "rate_limit_exceeded",
  "overloaded",
  "database_unavailable",
  "client_closed_request",
]);

/** Errors that never come from a provider. */
const OVERLOAD_CODES: ReadonlySet<ErrorCode> = new Set(["overloaded", "database_unavailable"]);

export const isOverload = ({ code }: GatewayError): boolean => OVERLOAD_CODES.has(code);
export const isRetryable = ({ code }: GatewayError): boolean => RETRYABLE.has(code);
export const isGatewayError = ({ code }: GatewayError): boolean => GATEWAY_CODES.has(code);

/** Runs requests of batches through their endpoints, as if clients had sent them. */
export class LineCalls {
  readonly #dependencies: LineCallDependencies;
  readonly #routes: ReadonlyMap<string, RouteDefinition>;

  constructor(dependencies: LineCallDependencies) {
    this.#dependencies = dependencies;
    const posts = dependencies.routes.filter(({ method }) => method === "POST");
    this.#routes = new Map(posts.map((route) => [route.path, route]));
  }

  /** Throws 403 if the key is not allowed to call the endpoint. */
  assertMayCall(key: ApiKeyRecord, endpoint: string): void {
    const { access } = this.#routes.get(endpoint)!;
    if (access.kind !== "model" || holdsScope(key, access.scope)) return;
    throw new GatewayError("missing_scope", `This API key lacks the scope ${access.scope}.`);
  }

  /** Calls a request. Repeated calls, on any instance, are charged once. */
  async call(request: LineRequest): Promise<LineAnswer | LineRefusal> {
    const { inFlight, note } = this.#dependencies;
    const logged = newCall(newId("req"));
    if (inFlight.isStopping) return this.#refusal(request, logged, stopping());
    inFlight.begin();
    try {
      const answer = await this.#answer(request, logged);
      if (!answer.isReplay) note(this.#recordOf(request, logged, answer.status));
      return answer;
    } catch (error) {
      return this.#refusal(request, logged, asGatewayError(error));
    } finally {
      logged.lifetime.releaseBody?.();
      inFlight.end();
    }
  }

  /**
   * Returns the part of a request that a provider batch needs. Returns undefined if the request must be
   * called, which includes invalid requests. Rejects if the gateway is overloaded.
   */
  async prepare(request: CalledLine): Promise<PreparedBatchLine | undefined> {
    if (statesPreset(request.body)) return undefined;
    const preparation: BatchPreparation = { kind: "first" };
    const outcome = await this.#runPhase(request, newCall(newId("req")), preparation);
    if ("error" in outcome && isGatewayError(outcome.error)) throw outcome.error;
    return preparation.prepared;
  }

  /**
   * Returns a provider's batch answer as the endpoint's answer, with its charge. The current rights of the
   * key do not matter.
   */
  async settle(
    request: CalledLine,
    requestId: string,
    settlement: Omit<BatchSettlement, "kind" | "charge">,
  ): Promise<SettledLine | LineRefusal> {
    const batchSettlement: BatchSettlement = { kind: "second", ...settlement };
    const logged = newCall(requestId);
    const answer = await this.#runPhase(request, logged, batchSettlement);
    if ("error" in answer) return answer;
    const record = this.#recordOf(request, logged, answer.status);
    const note = () => this.#dependencies.note(record);
    return { ...answer, charge: batchSettlement.charge!, note };
  }

  /** Returns the failure of a request that failed in a provider batch. */
  failed(request: CalledLine, requestId: string, error: GatewayError): LineRefusal {
    return this.#refusal(request, newCall(requestId), error);
  }

  async #runPhase(
    request: CalledLine,
    logged: LoggedCall,
    batchPhase: BatchPhase,
  ): Promise<LineAnswer | LineRefusal> {
    const { inFlight } = this.#dependencies;
    if (inFlight.isStopping) return this.#refusal(request, logged, stopping());
    inFlight.begin();
    try {
      return await this.#answer(request, logged, batchPhase);
    } catch (error) {
      return this.#refusal(request, logged, asGatewayError(error));
    } finally {
      logged.lifetime.releaseBody?.();
      inFlight.end();
    }
  }

  async #answer(
    request: CalledLine & Partial<Pick<LineRequest, "idempotency" | "storeLargeResult">>,
    { requestId, startedMs, log, lifetime }: LoggedCall,
    batchPhase?: BatchPhase,
  ): Promise<LineAnswer> {
    const admitAgain = async () => {
      const key = await this.#dependencies.usableKey(request.keyId);
      this.assertMayCall(key, request.endpoint);
      return { key, isLowPriority: true };
    };
    const route = this.#routes.get(request.endpoint)!;
    const caller = batchPhase?.kind === "second" ? formerCaller(request) : await admitAgain();
    const { key } = caller;
    const origin = { address: null, user_agent: null, request_id: requestId };
    log.request = loggedFieldsOf(request.body);
    const read = await readBody(route, request.body, request.organizationId, lifetime);
    const context: PaidContext = {
      ...read,
      requestId,
      startedMs,
      request: new Request(`http://localhost${request.endpoint}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
      }),
      internalIdempotency: request.idempotency,
      batchPhase,
      params: {},
      query: {},
      caller,
      operator: { id: "", name: "" },
      origin,
      author: { kind: "secret_key", id: key.id, name: key.name, via: "api", ...origin },
      address: "",
      admitAgain,
      admittedRateHeaders: undefined,
      log,
      lifetime,
      respond: (body, headers, status = 200) => new Response(body, { status, headers }),
      keepOpen: () => () => {},
      storeLargeResult: async (body) =>
        request.storeLargeResult?.({ status: 200, requestId, isReplay: false, body }),
    };
    const response = await route.handle(context);
    return {
      status: response.status,
      requestId,
      body: await response.bytes(),
      isReplay: response.headers.get("x-gateway-idempotent-replay") === "true",
    };
  }

  #refusal(request: CalledLine, logged: LoggedCall, error: GatewayError): LineRefusal {
    const { status } = ERROR_TABLE[error.code];
    logged.log.errorCode = error.code;
    const record = this.#recordOf(request, logged, status);
    const { requestId } = logged;
    return {
      error,
      async answer() {
        const body = await errorResponse(error, requestId).bytes();
        return { status, requestId, body, isReplay: false };
      },
      note: () => this.#dependencies.note(record),
    };
  }

  #recordOf({ endpoint, organizationId, keyId }: CalledLine, logged: LoggedCall, status: number) {
    return requestRecord(logged, this.#routes.get(endpoint)!, status, organizationId, keyId);
  }
}

/** Returns true if the request names a preset, which can change before the answer arrives. */
function statesPreset(body: unknown): boolean {
  const { preset } = body as { readonly preset?: unknown };
  return preset !== undefined && preset !== null;
}

/** Returns the caller of a request that was already admitted. */
function formerCaller({ keyId: id, organizationId }: CalledLine): Caller {
  return { key: { id, organizationId } as ApiKeyRecord };
}

type LoggedCall = Pick<RequestContext, "requestId" | "startedMs" | "log" | "lifetime">;

function newCall(requestId: string): LoggedCall {
  return { requestId, startedMs: performance.now(), log: {}, lifetime: {} };
}

/** Reads the body like the HTTP pipeline. Throws 400 if the body does not match the route's schema. */
async function readBody(
  route: RouteDefinition,
  body: unknown,
  owner: string,
  lifetime: RequestLifetime,
): Promise<Pick<RequestContext, "body" | "bodyText">> {
  const bodyText = JSON.stringify(body);
  if (bodyText.length > MAX_WHOLE_BYTES && route.readLongBody !== undefined) {
    await yieldToEventLoop();
    const bytes = sharedCopy(new TextEncoder().encode(bodyText));
    const read = await route.readLongBody(bytes, owner, NEVER);
    lifetime.releaseBody = () => read.release();
    return { body: read.value, bodyText: "" };
  }
  createCheck(route.body!, "invalid_body", "Request body")(body);
  return { body, bodyText };
}

const NEVER = new AbortController().signal;
