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
import { loggedFieldsOf, type RequestFacts } from "../../lib/request-facts.ts";
import { sharedCopy } from "../../lib/shared-bytes.ts";
import { yieldToEventLoop } from "../../lib/turn-of-loop.ts";
import { type RequestRecord, requestRecord } from "../../platform/telemetry/interface.ts";

export interface LineCallDependencies {
  /** The billed endpoints. */
  readonly routes: readonly RouteDefinition[];
  /** Requests that a stop of the gateway waits for. */
  readonly inFlight: { begin(): void; end(): void; readonly isStopping: boolean };
  /** The key as it stands now. Rejects where it may not call any more. */
  usableKey(keyId: string): Promise<ApiKeyRecord>;
  /** Receives requests when they have ended, as those of clients. */
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
  /** Keeps, before its charge, an answer that is too large to be kept under the idempotency key. */
  storeLargeResult(answer: LineAnswer): Promise<void>;
}

export interface LineAnswer {
  readonly status: number;
  readonly requestId: string;
  /** JSON, as UTF-8: as a text a long one would hold the event loop. */
  readonly body: Uint8Array;
  /** It is what an earlier call under the idempotency key was answered with. */
  readonly isReplay: boolean;
}

/** A request that was refused, or has failed. */
export interface LineRefusal {
  readonly error: GatewayError;
  /** What a client would have got. */
  answer(): Promise<LineAnswer>;
  /** To be called where it is the end of the request: it then is among the organization's failed requests. */
  note(): void;
}

/** Of a provider's batch; charged once its figures are written. */
export interface SettledLine extends LineAnswer {
  readonly charge: UnwrittenCharge;
  /** To be called once it is. */
  note(): void;
}

const PASSING: ReadonlySet<ErrorCode> = new Set([
  ...RETRYABLE_CODES,
  "too_many_background_responses",
]);
/** They say nothing about the request: it waits for them to end. */
const OF_GATEWAY: ReadonlySet<ErrorCode> = new Set([
  "rate_limit_exceeded",
  "overloaded",
  "database_unavailable",
  "client_closed_request",
]);

/** No provider's failure becomes one of these. */
const MOMENTARY: ReadonlySet<ErrorCode> = new Set(["overloaded", "database_unavailable"]);

export const isOverload = ({ code }: GatewayError): boolean => MOMENTARY.has(code);
export const isRetryable = ({ code }: GatewayError): boolean => PASSING.has(code);
export const isGatewayError = ({ code }: GatewayError): boolean => OF_GATEWAY.has(code);

/** Puts requests of batches through their endpoints, as if their clients had sent them. */
export class LineCalls {
  readonly #dependencies: LineCallDependencies;
  readonly #routes: ReadonlyMap<string, RouteDefinition>;

  constructor(dependencies: LineCallDependencies) {
    this.#dependencies = dependencies;
    const posts = dependencies.routes.filter(({ method }) => method === "POST");
    this.#routes = new Map(posts.map((route) => [route.path, route]));
  }

  /** Throws 403 where the key may not call the endpoint. */
  assertMayCall(key: ApiKeyRecord, endpoint: string): void {
    const { access } = this.#routes.get(endpoint)!;
    if (access.kind !== "model" || holdsScope(key, access.scope)) return;
    throw new GatewayError("missing_scope", `This API key lacks the scope ${access.scope}.`);
  }

  /** The same request twice, on any instance, is charged once. */
  async call(request: LineRequest): Promise<LineAnswer | LineRefusal> {
    const { inFlight, note } = this.#dependencies;
    const asked = askedNow(newId("req"));
    if (inFlight.isStopping) return this.#refusal(request, asked, stopping());
    inFlight.begin();
    try {
      const answer = await this.#answer(request, asked);
      if (!answer.isReplay) note(this.#recordOf(request, asked, answer.status));
      return answer;
    } catch (error) {
      return this.#refusal(request, asked, asGatewayError(error));
    } finally {
      asked.log.releaseBody?.();
      inFlight.end();
    }
  }

  /**
   * What of a request a provider can be given in a batch; undefined where it is to be called, also for what is wrong with
   * it. Rejects where the gateway has no time for it now.
   */
  async hand(request: CalledLine): Promise<PreparedBatchLine | undefined> {
    if (statesPreset(request.body)) return undefined;
    const preparation: BatchPreparation = { kind: "first" };
    const outcome = await this.#runPhase(request, askedNow(newId("req")), preparation);
    if ("error" in outcome && isGatewayError(outcome.error)) throw outcome.error;
    return preparation.handed;
  }

  /** What a provider has answered to a request in a batch, and its charge. Whether the key may call still is no matter. */
  async take(
    request: CalledLine,
    requestId: string,
    settlement: Omit<BatchSettlement, "kind" | "charge">,
  ): Promise<SettledLine | LineRefusal> {
    const second: BatchSettlement = { kind: "second", ...settlement };
    const asked = askedNow(requestId);
    const answer = await this.#runPhase(request, asked, second);
    if ("error" in answer) return answer;
    const record = this.#recordOf(request, asked, answer.status);
    const note = () => this.#dependencies.note(record);
    return { ...answer, charge: second.charge!, note };
  }

  /** A request that a provider has failed in a batch. */
  failed(request: CalledLine, requestId: string, error: GatewayError): LineRefusal {
    return this.#refusal(request, askedNow(requestId), error);
  }

  async #runPhase(
    request: CalledLine,
    asked: Asked,
    batchPhase: BatchPhase,
  ): Promise<LineAnswer | LineRefusal> {
    const { inFlight } = this.#dependencies;
    if (inFlight.isStopping) return this.#refusal(request, asked, stopping());
    inFlight.begin();
    try {
      return await this.#answer(request, asked, batchPhase);
    } catch (error) {
      return this.#refusal(request, asked, asGatewayError(error));
    } finally {
      asked.log.releaseBody?.();
      inFlight.end();
    }
  }

  async #answer(
    request: CalledLine & Partial<Pick<LineRequest, "idempotency" | "storeLargeResult">>,
    { requestId, startedMs, log }: Asked,
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
    log.asked = loggedFieldsOf(request.body);
    const read = await readBody(route, request.body, request.organizationId, log);
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

  #refusal(request: CalledLine, asked: Asked, error: GatewayError): LineRefusal {
    const { status } = ERROR_TABLE[error.code];
    asked.log.errorCode = error.code;
    const record = this.#recordOf(request, asked, status);
    const { requestId } = asked;
    return {
      error,
      async answer() {
        const body = await errorResponse(error, requestId).bytes();
        return { status, requestId, body, isReplay: false };
      },
      note: () => this.#dependencies.note(record),
    };
  }

  #recordOf({ endpoint, organizationId, keyId }: CalledLine, asked: Asked, status: number) {
    return requestRecord(asked, this.#routes.get(endpoint)!, status, organizationId, keyId);
  }
}

/** What a preset adds may have changed when the answer comes. */
function statesPreset(body: unknown): boolean {
  const { preset } = body as { readonly preset?: unknown };
  return preset !== undefined && preset !== null;
}

/** Of what was admitted before. */
function formerCaller({ keyId: id, organizationId }: CalledLine): Caller {
  return { key: { id, organizationId } as ApiKeyRecord };
}

type Asked = Pick<RequestContext, "requestId" | "startedMs" | "log">;

function askedNow(requestId: string): Asked {
  return { requestId, startedMs: performance.now(), log: {} };
}

/** As the pipeline reads the body of a request. Throws 400. */
async function readBody(
  route: RouteDefinition,
  body: unknown,
  owner: string,
  log: RequestFacts,
): Promise<Pick<RequestContext, "body" | "bodyText">> {
  const bodyText = JSON.stringify(body);
  if (bodyText.length > MAX_WHOLE_BYTES && route.readLongBody !== undefined) {
    await yieldToEventLoop();
    const bytes = sharedCopy(new TextEncoder().encode(bodyText));
    const read = await route.readLongBody(bytes, owner, NEVER);
    log.releaseBody = () => read.release();
    return { body: read.value, bodyText: "" };
  }
  createCheck(route.body!, "invalid_body", "Request body")(body);
  return { body, bodyText };
}

const NEVER = new AbortController().signal;
