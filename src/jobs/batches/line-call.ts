import { asGatewayError } from "../../../db/unavailable.ts";
import type { Caller } from "../../http/caller.ts";
import { ERROR_TABLE, errorResponse } from "../../http/error-response.ts";
import { MAX_WHOLE_BYTES } from "../../http/read-body.ts";
import type { RouteDefinition } from "../../http/route.ts";
import { createCheck } from "../../http/validate.ts";
import type { BatchAnswer, PreparedBatchLine } from "../../inference/call/batched-call.ts";
import type { CallOutcome, InternalIdempotencyKey } from "../../inference/call/call.ts";
import type { UnwrittenCharge } from "../../inference/call/call-charge.ts";
import type { DirectCalls, IncomingCall, PaidRoute } from "../../inference/endpoints/paid-route.ts";
import { type ApiKeyRecord, hasTeamPreset, holdsScope } from "../../lib/api-key-record.ts";
import { type ErrorCode, GatewayError, RETRYABLE_CODES, stopping } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { loggedFieldsOf, type RequestLifetime } from "../../lib/request-log.ts";
import { sharedCopy } from "../../lib/shared-bytes.ts";
import { yieldToEventLoop } from "../../lib/yield-to-event-loop.ts";
import { type RequestRecord, requestRecord } from "../../platform/telemetry/interface.ts";

export interface LineCallDependencies {
  /** The model endpoints. Lines call the billed ones. */
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
  readonly #routes: ReadonlyMap<string, PaidRoute>;

  constructor(dependencies: LineCallDependencies) {
    this.#dependencies = dependencies;
    const paid = dependencies.routes.filter((route): route is PaidRoute => "direct" in route);
    this.#routes = new Map(paid.map((route) => [route.path, route]));
  }

  /** Throws 403 if the key is not allowed to call the endpoint. */
  assertMayCall(key: ApiKeyRecord, endpoint: string): void {
    const { access } = this.#routes.get(endpoint)!;
    if (access.kind !== "model" || holdsScope(key, access.scope)) return;
    throw new GatewayError("missing_scope", `This API key lacks the scope ${access.scope}.`);
  }

  /** Calls a request. Repeated calls, on any instance, are charged once. */
  call(request: LineRequest): Promise<LineAnswer | LineRefusal> {
    const { idempotency, storeLargeResult } = request;
    const logged = newCall(newId("req"));
    const { requestId } = logged;
    return this.#run(request, logged, async (direct) => {
      const context = await this.#contextOf(request, logged, await this.#admit(request));
      const outcome = await direct.run({
        ...context,
        internalIdempotency: idempotency,
        storeLargeResult: (body) =>
          storeLargeResult({ status: 200, requestId, isReplay: false, body }),
      });
      const isReplay = outcome.kind === "replay";
      const status = isReplay ? outcome.status : 200;
      const answer = { status, requestId, body: await bytesOf(outcome), isReplay };
      if (!isReplay) this.#dependencies.note(this.#recordOf(request, logged, status));
      return answer;
    });
  }

  /**
   * Returns the part of a request that a provider batch needs. Returns undefined if the request must be
   * called, which includes invalid requests. Rejects if the gateway is overloaded.
   */
  async prepare(request: CalledLine): Promise<PreparedBatchLine | undefined> {
    if (statesPreset(request.body)) return undefined;
    const logged = newCall(newId("req"));
    const prepared = await this.#run(request, logged, async (direct) => {
      const context = await this.#contextOf(request, logged, await this.#admit(request));
      return direct.prepareForBatch({ ...context, isForProviderBatch: true });
    });
    if (prepared === undefined || !("error" in prepared)) return prepared;
    if (isGatewayError(prepared.error)) throw prepared.error;
    return undefined;
  }

  /**
   * Returns a provider's batch answer as the endpoint's answer, with its charge. The current rights of the
   * key do not matter.
   */
  settle(
    request: CalledLine,
    requestId: string,
    batchAnswer: BatchAnswer,
  ): Promise<SettledLine | LineRefusal> {
    const logged = newCall(requestId);
    return this.#run(request, logged, async (direct) => {
      const context = await this.#contextOf(request, logged, formerCaller(request));
      const inBatch = { ...context, isForProviderBatch: true };
      const settled = await direct.settleBatchAnswer(inBatch, batchAnswer);
      const body = await bytesOf(settled);
      const record = this.#recordOf(request, logged, 200);
      const note = () => this.#dependencies.note(record);
      return { status: 200, requestId, body, isReplay: false, charge: settled.charge, note };
    });
  }

  /** Returns the failure of a request that failed in a provider batch. */
  failed(request: CalledLine, requestId: string, error: GatewayError): LineRefusal {
    return this.#refusal(request, newCall(requestId), error);
  }

  /** Runs a step of a line, which a shutdown waits for. Returns the error of a failed step as a refusal. */
  async #run<Result>(
    request: CalledLine,
    logged: LoggedCall,
    step: (direct: DirectCalls) => Promise<Result>,
  ): Promise<Result | LineRefusal> {
    const { inFlight } = this.#dependencies;
    if (inFlight.isStopping) return this.#refusal(request, logged, stopping());
    inFlight.begin();
    try {
      return await step(this.#routes.get(request.endpoint)!.direct);
    } catch (error) {
      return this.#refusal(request, logged, asGatewayError(error));
    } finally {
      logged.lifetime.releaseBody?.();
      inFlight.end();
    }
  }

  async #admit({ keyId, endpoint }: CalledLine): Promise<Caller> {
    const key = await this.#dependencies.usableKey(keyId);
    this.assertMayCall(key, endpoint);
    return { key, isLowPriority: true };
  }

  async #contextOf(request: CalledLine, logged: LoggedCall, caller: Caller): Promise<IncomingCall> {
    const { body, endpoint, organizationId } = request;
    const { log, lifetime } = logged;
    log.request = loggedFieldsOf(body);
    const route = this.#routes.get(endpoint)!;
    return {
      ...logged,
      ...(await readBody(route, body, { owner: organizationId, key: caller.key, lifetime })),
      request: { headers: new Headers({ "content-type": "application/json" }), signal: NEVER },
      caller,
      admitAgain: () => this.#admit(request),
      admittedRateHeaders: undefined,
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

type LoggedCall = Pick<IncomingCall, "requestId" | "startedMs" | "log" | "lifetime">;

function newCall(requestId: string): LoggedCall {
  return { requestId, startedMs: performance.now(), log: {}, lifetime: {} };
}

/** Returns the body of an answer. A preset can make the answer a stream, which is then read to its end. */
function bytesOf({ body }: Pick<CallOutcome, "body">): Promise<Uint8Array> {
  return new Response(body as BodyInit).bytes();
}

/** Reads the body like the HTTP pipeline. Throws 400 if the body does not match the route's schema. */
async function readBody(
  route: RouteDefinition,
  body: unknown,
  {
    owner,
    key,
    lifetime,
  }: {
    readonly owner: string;
    readonly key: ApiKeyRecord;
    readonly lifetime: RequestLifetime;
  },
): Promise<Pick<IncomingCall, "body" | "bodyText">> {
  const bodyText = JSON.stringify(body);
  const isLong = bodyText.length > MAX_WHOLE_BYTES && !hasTeamPreset(key);
  if (isLong && route.readLongBody !== undefined) {
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
