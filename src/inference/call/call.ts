import type { IdempotencyClaim } from "../../../db/queries/idempotency.ts";
import type { Hold } from "../../billing/ledger/interface.ts";
import type { Caller } from "../../http/caller.ts";
import type { RequestLifetime, RequestLog } from "../../lib/request-log.ts";
import type { TraceSpan } from "../../lib/trace.ts";
import { type AbortNotice, CallAbort } from "../../providers/transport/call-abort.ts";
import type { Fees, RateSubject } from "./admission.ts";
import type { CacheWriter } from "./cache/cache-writer.ts";
import type { AcceptedRequest, Preparation } from "./endpoint.ts";
import type { CallGuard } from "./guard/call-guard.ts";
import type { Candidate, RoutePlan } from "./routing/plan-route.ts";
import type { TokenReservations } from "./token-reservation.ts";

/** A request after its endpoint has accepted it. */
interface RunningRequest<Request> {
  readonly requestId: string;
  /** Monotonic milliseconds. */
  readonly startedMs: number;
  readonly request: Request;
  /** Aborts when the client disconnects. */
  readonly clientSignal: AbortSignal;
  readonly log: RequestLog;
  readonly lifetime: RequestLifetime;
  /** The guardrails of the call. Undefined if it has none. */
  readonly guard?: CallGuard | undefined;
}

/**
 * Replaces the client's idempotency key for calls that the gateway makes itself. `keyId` is the id of the
 * calling object instead of an API key's id, so that it never equals a client's key.
 */
export type InternalIdempotencyKey = Pick<IdempotencyClaim, "keyId" | "idempotencyKey">;

/** A request that its endpoint has accepted, with everything that the paid call needs of it. */
export interface AcceptedCall<Request> extends RateSubject, RunningRequest<Request> {
  readonly bodyText: string;
  readonly idempotencyHeader: string | null;
  readonly internalIdempotency?: InternalIdempotencyKey | undefined;
  /** Stores a result that is too large for the idempotency table. See `IdempotencyClaim`. */
  storeLargeResult?(body: Uint8Array): Promise<void>;
  /** Returns the request with the guardrails' redactions in its body. Rejects with 400 if they block it. */
  applyGuardrails?(guard: CallGuard): Promise<Request>;
  /** Headers of the client's request. Absent for calls that the gateway makes itself. */
  readonly headers?: Headers | undefined;
  /** Authenticates the caller again. Rejects if the key can no longer call. */
  admitAgain(): Promise<Caller>;
  /**
   * Answers the request after money is held for it and before a provider is called. `storeResult` stores the
   * result for its idempotency key. If this rejects, the hold is released.
   */
  begin?(admitted: AdmittedCall<Request>, storeResult: StoreResult): Promise<void>;
}

/**
 * Stores the result for the idempotency key of a call, if it has one. Resolves when the result is durable.
 */
export type StoreResult = (headers: Record<string, string>, body: Uint8Array) => Promise<void>;

/** A call that is routed, within its limits, and has money held for it. */
export interface AdmittedCall<Request> extends RunningRequest<Request> {
  readonly plan: RoutePlan;
  readonly hold: Hold;
  readonly fees: Fees;
  /** The tokens that the call reserves in its key's limit. Undefined if the key has no limit. */
  readonly tokens?: TokenReservations | undefined;
  /** The limit of output units that the caller set. */
  readonly statedLimit: number | undefined;
  /** True if the caller requested the route of the call. */
  readonly explainsRoute: boolean;
  /** Method and path of the endpoint. */
  readonly route: string;
  /** The start of the transaction's description. */
  readonly title: string;
  /** Members of the request that are stored with its charge, such as `user` and `metadata`. */
  readonly details: Record<string, unknown> | null;
  readonly claim: IdempotencyClaim | undefined;
  readonly preparation?: Preparation | undefined;
  /** The writer that stores the answer in the response cache. Undefined if it is not stored. */
  readonly cacheWriter?: CacheWriter | undefined;
  /** Receives the candidate that answered, if there were several candidates. */
  readonly recordServed?: ((candidate: Candidate) => void) | undefined;
}

export type CallOutcome =
  | {
      readonly kind: "whole";
      readonly headers: Record<string, string>;
      readonly body: string | Uint8Array;
    }
  | {
      readonly kind: "stream";
      readonly headers: Record<string, string>;
      readonly body: ReadableStream<Uint8Array>;
    }
  /** The stored result of an earlier call with the same idempotency key. */
  | {
      readonly kind: "replay";
      readonly status: number;
      readonly headers: Record<string, string>;
      readonly body: Uint8Array;
    };

interface CallAim {
  readonly onNewConnection: boolean;
  /** The trace span of the provider call, if the request is traced. */
  readonly span?: TraceSpan | undefined;
}

/** One call of a provider, and its abort signal. One object, because it is created for every call. */
export class ProviderCall extends CallAbort {
  readonly requestId: string;
  readonly stream: boolean;
  /** The provider's name of the model. */
  model = "";
  modelId = "";
  onNewConnection = false;
  /** The trace span, if the call is traced. */
  span: TraceSpan | undefined;
  #callersTraceparent: string | undefined;

  constructor(requestId: string, stream: boolean) {
    super();
    this.requestId = requestId;
    this.stream = stream;
  }

  /**
   * Directs the call to the candidate.
   *
   * @param traceparent the caller's, if the request is not traced
   */
  aimAt(
    { model, upstreamModel }: Candidate,
    { onNewConnection, span }: CallAim,
    traceparent?: string,
  ): void {
    this.#callersTraceparent = traceparent;
    this.traceBy(span);
    this.model = upstreamModel;
    this.modelId = model.canonicalId ?? model.id;
    this.onNewConnection = onNewConnection;
  }

  traceBy(span: TraceSpan | undefined): void {
    this.span = span;
    this.traceparent = span?.traceparent ?? this.#callersTraceparent;
  }

  get abortNotice(): AbortNotice {
    return this;
  }
}

/** Returns the request to a provider: the endpoint's fields and the fields of every call. */
export function providerRequest<Stated extends object>(call: ProviderCall, stated: Stated) {
  return {
    model: call.model,
    modelId: call.modelId,
    requestId: call.requestId,
    onNewConnection: call.onNewConnection,
    // Created on the first read. Most providers never read it.
    get signal() {
      return call.signal;
    },
    abortNotice: call.abortNotice,
    ...stated,
  };
}

/**
 * Returns the limit of output units for the provider: the caller's limit, or the limit lowered by the hold or
 * the key's tokens. Returns undefined if nothing sets a limit. A lowered limit is never above the
 * candidate's own limit: it comes from the most expensive candidate, and a candidate with a smaller limit
 * could reject it. A hold never lowers the limit of a BYOK call, unless the key's budgets count such calls.
 */
export function sentLimit(
  { hold, statedLimit, tokens }: Pick<AdmittedCall<AcceptedRequest>, LimitFields>,
  { terms, byokKeyId }: Candidate,
): number | undefined {
  const isUnbound = byokKeyId !== undefined && hold.budgetNano === undefined;
  const lowered = hold.isLowered && !isUnbound ? hold.outputTokens : tokens?.outputLimit;
  return lowered === undefined ? statedLimit : Math.min(lowered, terms.maxOutputTokens);
}

type LimitFields = "hold" | "statedLimit" | "tokens";
