import type { IdempotencyClaim } from "../../../db/queries/idempotency.ts";
import type { Hold } from "../../billing/ledger/interface.ts";
import type { RequestFacts } from "../../lib/request-facts.ts";
import type { TraceSpan } from "../../lib/trace.ts";
import { type ChatBody, ShortBody } from "../../providers/chat-body.ts";
import { type AbortNotice, CallAbort } from "../../providers/transport/call-abort.ts";
import type { Caller, Fees, RateSubject } from "./admission.ts";
import type { BatchPhase } from "./batched-call.ts";
import type { CacheWriter } from "./cache/keeping.ts";
import type { TokenReservation } from "./call-tokens.ts";
import type { AcceptedRequest, Preparation } from "./endpoint.ts";
import type { CallGuard } from "./guard/call-guard.ts";
import type { Candidate, RoutePlan } from "./routing/plan-route.ts";

/** A request as its endpoint accepted it. */
interface RunningRequest<Request> {
  readonly requestId: string;
  /** Monotonic milliseconds. */
  readonly startedMs: number;
  readonly request: Request;
  /** Aborts when the client goes away. */
  readonly clientSignal: AbortSignal;
  readonly log: RequestFacts;
  /** Guardrails of the call; undefined where it has none. */
  readonly guard?: CallGuard | undefined;
}

/**
 * In the place of a client's idempotency key, for what the gateway asks by itself: `keyId` is the id of the object that
 * asks, where an API key's would stand, so that no key of a client is the same.
 */
export type InternalIdempotencyKey = Pick<IdempotencyClaim, "keyId" | "idempotencyKey">;

/** With what the line needs of the HTTP request it came with. */
export interface IncomingCall<Request> extends RateSubject, RunningRequest<Request> {
  readonly bodyText: string;
  readonly idempotencyHeader: string | null;
  readonly internalIdempotency?: InternalIdempotencyKey | undefined;
  /** As that of an idempotency claim. */
  storeLargeResult?(body: Uint8Array): Promise<void>;
  /** Set where its provider answers it in a batch. */
  readonly half?: BatchPhase | undefined;
  /** The request with what guardrails redact in its body. Rejects with 400 where they block it. */
  screened?(guard: CallGuard): Promise<Request>;
  /** Absent for what the gateway asks by itself. */
  readonly headers?: Headers | undefined;
  /** The caller as it stands now. Rejects where its key may not call any more. */
  admitAgain(): Promise<Caller>;
  /**
   * Answers the request once money is held for it, before a provider is called; what its idempotency key gives from
   * then on goes to `keepResult`. Where it rejects, the hold is given back.
   */
  begin?(admitted: AdmittedCall<Request>, keepResult: KeepResult): Promise<void>;
}

/** Resolves when the result is durable that the idempotency key of a call gives, where it has one. */
export type KeepResult = (headers: Record<string, string>, body: Uint8Array) => Promise<void>;

/** A call that is routed, within its limits, and has money held for it. */
export interface AdmittedCall<Request> extends RunningRequest<Request> {
  readonly plan: RoutePlan;
  readonly hold: Hold;
  readonly fees: Fees;
  /** What it counts for against its key's limit of tokens; undefined where that has none. */
  readonly tokens?: TokenReservation | undefined;
  /** The limit of units that the caller set. */
  readonly statedLimit: number | undefined;
  /** Whether the caller asked how the call is routed. */
  readonly explainsRoute: boolean;
  /** Method and path of its endpoint. */
  readonly route: string;
  /** Begins the description of its transaction. */
  readonly title: string;
  /** Recorded with the charge. */
  readonly details: Record<string, unknown> | null;
  readonly claim: IdempotencyClaim | undefined;
  readonly preparation?: Preparation | undefined;
  /** Where its answer is to be kept in the response cache. */
  readonly keeping?: CacheWriter | undefined;
  /** Receives which candidate has answered, where there were several. */
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
  /** Of the call, where it is traced. */
  readonly span?: TraceSpan | undefined;
}

/** A call of a provider, and what ends it early, in one object. */
export class ProviderCall extends CallAbort {
  readonly requestId: string;
  readonly stream: boolean;
  /** The name the provider knows the model by. */
  model = "";
  modelId = "";
  /** Set by the endpoint. */
  body: ChatBody = NO_BODY;
  asItems = false;
  onNewConnection = false;
  /** Where the call is traced. */
  span: TraceSpan | undefined;
  #callersTraceparent: string | undefined;

  constructor(requestId: string, stream: boolean) {
    super();
    this.requestId = requestId;
    this.stream = stream;
  }

  /**
   * Directs the call to the candidate, whose body the endpoint then sets.
   *
   * @param traceparent the caller's, of a request that is not traced
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

const NO_BODY = new ShortBody({});

/** What a provider is asked for: what the endpoint states, and what is said of every call. */
export function providerRequest<Stated extends object>(call: ProviderCall, stated: Stated) {
  return {
    model: call.model,
    modelId: call.modelId,
    requestId: call.requestId,
    onNewConnection: call.onNewConnection,
    // Made when it is first read, which most providers do not.
    get signal() {
      return call.signal;
    },
    abortNotice: call.abortNotice,
    ...stated,
  };
}

/**
 * The limit of units that goes upstream: what the caller set, or what the hold or the tokens of the key have lowered it
 * to. The hold is that of the dearest candidate; one that gives less may refuse to be asked for more. Nothing is held
 * for a call with the organization's own key, so no hold lowers it, unless the key's budgets count such calls.
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
