import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { ByteBuffer } from "../../lib/byte-buffer.ts";
import type { ModelCategory, ModelTerms } from "../../lib/catalogue-model.ts";
import { GatewayError } from "../../lib/errors.ts";
import { type ExactInteger, plus, times } from "../../lib/exact-integer.ts";
import { MAX_TAGS, tagsOf } from "../../lib/request-tags.ts";
import type { Usage } from "../../lib/usage.ts";
import type { Capability, PieceReader } from "../../providers/interface.ts";
import type { StreamedAnswer } from "../../providers/streamed-answer.ts";
import type { AdmittedCall, ProviderCall } from "./call.ts";
import type { CallGuard } from "./guard/call-guard.ts";
import type { Candidate, RoutePlan } from "./routing/plan-route.ts";
import type { ProviderPreferences } from "./routing/preferences.ts";

/** The body fields that every paid call reads. All other fields are read by the endpoint only. */
export interface CommonFields {
  readonly model?: string | null;
  readonly models?: readonly string[] | null;
  readonly provider?: ProviderPreferences | null;
  readonly route_explain?: boolean | null;
  readonly guardrail?: string | null;
  readonly stream?: boolean | null;
  readonly user?: string | null;
  readonly session_id?: string | null;
  readonly trace?: Record<string, unknown> | null;
  readonly metadata?: Record<string, unknown> | null;
}

/** A request whose body the endpoint has accepted. */
export interface AcceptedRequest {
  readonly fields: CommonFields;
  /** The hash of the body, if it has already been computed. */
  readonly bodyHash?: string | undefined;
}

/** An upper bound of the provider's cost of a request at one candidate, before the fee. */
export interface CostBound {
  /** The part that does not depend on the number of units. */
  readonly fixedFemto: ExactInteger;
  /** The part of `fixedFemto` for the gateway's own tools. It is charged even for BYOK calls. */
  readonly toolsFemto?: ExactInteger | undefined;
  /** The cost of one more unit of the answer, such as an output token of each choice. */
  readonly perUnitFemto: ExactInteger;
  /** The caller's limit of units, or the model's limit. */
  readonly units: number;
  /** Tokens of the prompt that count against the key's token limit. 0 if the endpoint is not priced by tokens. */
  readonly fixedTokens: number;
  /** Tokens of one more unit that count against that limit. 0 if the endpoint is not priced by tokens. */
  readonly perUnitTokens: number;
}

/** Returns the bound of a request whose answer has no limit of units. */
export function fixedBound(fixedFemto: ExactInteger, fixedTokens: number): CostBound {
  return { fixedFemto, perUnitFemto: 0, units: 0, fixedTokens, perUnitTokens: 0 };
}

/**
 * Does the gateway's own work for an answer, once, after money is held. Resolves with false if part of it
 * failed; the answer is then not stored for equal requests. Rejects with the error of the request, or with
 * the signal's reason.
 */
export type Preparation = (call: {
  readonly organizationId: string;
  readonly requestId: string;
  readonly signal: AbortSignal;
}) => Promise<boolean>;

/** Facts that an answer contains and that are known once its charge is. */
export interface AnswerFacts {
  readonly requestId: string;
  readonly candidate: Candidate;
  readonly usage: Usage;
  readonly costUsd: number;
  /** The error of an answer that failed after its first step: see `failureOf`. */
  readonly error?: GatewayError | undefined;
}

/**
 * The parts that differ between billed endpoints. Admission, routing, holds, retries, charges, events and
 * headers are shared (run-call.ts).
 */
export interface PaidEndpoint<Request extends AcceptedRequest, Answer> {
  /** Method and path. An idempotency key belongs to one endpoint. */
  readonly route: string;
  /** The categories of the models that the endpoint serves. */
  readonly categories: readonly ModelCategory[];
  /** A capability. The endpoint also serves models that have it, whatever their category. */
  readonly alsoServes?: string;
  /** The capability that a provider needs to serve the endpoint. */
  readonly capability: Capability;
  /** The start of the description of its transactions: "Chat completion". */
  readonly title: string;
  /**
   * Returns the request after the checks that the schema cannot express. Throws 400 if a check fails.
   *
   * @param guard set if guardrails have inspected the body
   */
  accept(body: unknown, headers: Headers, guard?: CallGuard): Request;
  /**
   * Returns the text that requests share if they profit from the same prompt cache of a provider. Called if
   * the request has no session id.
   */
  affinity?(request: Request): string | undefined;
  /** Returns the plan without the candidates that cannot serve the request. Throws 400 if none is left. */
  plan?(request: Request, plan: RoutePlan): RoutePlan;
  /**
   * Returns true if a single provider call in a batch can answer the request. Absent if no request of the
   * endpoint can be batched.
   */
  canBeBatched?(request: Request): boolean;
  /** Returns the work of the gateway before a provider is called. Returns undefined for most requests. */
  preparation?(request: Request): Preparation | undefined;
  /**
   * Returns an upper bound of the request's cost.
   *
   * @param candidate absent if no candidate is available; the model's own terms are used then
   */
  bound(request: Request, terms: ModelTerms, candidate?: Candidate): CostBound;
  /**
   * Throws 400 if the request needs output that guardrails cannot inspect. Absent if the output of the
   * endpoint is not text.
   */
  assertScreenable?(request: Request): void;
  /**
   * Returns a body in which everything that guardrails must inspect is text. Returns undefined if the body
   * already has that form. Rejects with 400 if it cannot be converted.
   */
  readable?(body: unknown): Promise<unknown>;
  /** Returns the limit of units that the caller set. If it is set, the hold is not lowered. */
  statedLimit(request: Request): number | undefined;
  /**
   * Calls the provider. Rejects with ProviderFailure if there is no answer, or if the answer is unusable.
   *
   * @param steps set if `takesSteps` returns true
   */
  call(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedCall<Request>,
    steps?: WholeAnswerSteps,
  ): Promise<Answer>;
  /**
   * Returns true if a whole answer can need several provider calls, which are then streamed. Absent if it
   * never does.
   */
  takesSteps?(request: Request): boolean;
  /**
   * Returns the error that ended an answer after its first step: a ProviderFailure or a GatewayError. Returns
   * undefined if there was none.
   */
  failureOf?(answer: Answer): unknown;
  /** Returns the usage that the provider reported, or the gateway's own count. */
  usage(answer: Answer, request: Request, terms: ModelTerms): Usage;
  /** Returns the content type of a whole answer and of its stored result. JSON if absent. */
  answerType?(request: Request, answer: Answer): string;
  /** Returns the body of the response, as text or as UTF-8 bytes. */
  answer(answer: Answer, request: Request, facts: AnswerFacts): string | Uint8Array;
  /**
   * Stores the answer before it is charged. The returned effect makes the stored answer visible in the same
   * transaction as the charge. Returns undefined if the endpoint stores nothing.
   */
  storeAnswer?(
    answer: Answer,
    admitted: AdmittedCall<Request>,
    facts: AnswerFacts,
  ): Promise<StatementEffect | undefined>;
  /**
   * The form of streams, for requests whose field `stream` is true: one form, or a form for each request.
   */
  readonly stream?: StreamForm<Request> | ((request: Request) => StreamForm<Request>);
  /** The cache format of its answers. Absent if they cannot be stored in the response cache. */
  readonly cacheFormat?: CacheFormat<Request>;
}

/** Facts of the request that gets a cached answer, which the answer contains. A hit costs nothing. */
export interface HitFacts {
  /** The id of the request that gets the answer. */
  readonly requestId: string;
  /** The model that served the original request. */
  readonly model: string;
  readonly usage: Usage;
  /** Unix seconds. */
  readonly nowSeconds: number;
}

/** Gathers a stream as it is delivered. */
export interface AnswerGatherer {
  /** Adds delivered bytes. Never throws. */
  push(bytes: Uint8Array): void;
  /**
   * Returns the whole answer in the cache format. Returns undefined if the answer is incomplete or must not
   * be stored.
   */
  end(): string | undefined;
}

/**
 * How the answers of one endpoint are stored for equal requests. There is one format for whole and streamed
 * answers, and a stored answer can be returned as either.
 */
export interface CacheFormat<Request extends AcceptedRequest> {
  /**
   * Returns everything in a request that affects its answer, except its models, as JSON. Returns undefined if
   * the answer must not be stored, or if the request has side effects.
   */
  identity(request: Request): Readonly<Record<string, unknown>> | undefined;
  /**
   * Converts a whole answer to the cache format. Returns undefined if it must not be stored. Never throws.
   */
  ofWhole(body: string | Uint8Array): string | undefined;
  /** Returns the body of a whole answer. */
  whole(cached: string, request: Request, facts: HitFacts): string;
  /** Returns a gatherer. Absent if the endpoint serves no streams. */
  gather?(): AnswerGatherer;
  /** Returns all events of a stream. */
  stream?(cached: string, request: Request, facts: HitFacts): string;
  /** Stores an answer from the cache, as the endpoint stores generated answers. */
  storeAnswer?(
    cached: string,
    admitted: AdmittedCall<Request>,
    facts: HitFacts,
  ): Promise<StatementEffect | undefined>;
}

/**
 * The money of an answer that needs several provider calls in sequence. The admitted hold covers the first
 * call.
 */
export interface StepMoney {
  /** Resolves when the usage so far is recorded, so that it is charged if this process dies now. */
  checkpoint(): Promise<void>;
  /**
   * Resolves with true if the hold covers another step in addition to the usage so far. Extends the hold if
   * necessary. Resolves with false if the organization has too little money, or if the key's token window has
   * too few tokens left. Rejects with 429 if the window has too few tokens and nothing was used yet.
   */
  reserveStep(candidate: Candidate, usage: Usage, step: StepBound): Promise<boolean>;
}

/** The steps that an earlier call completed under the same idempotency key. */
export interface EarlierSteps {
  /** The state that was passed to `store`. */
  readonly state: unknown;
  /** True if these steps are already charged. Then only later steps are charged. */
  readonly isPaid: boolean;
}

/** The money of a whole answer with several steps. Nothing is charged before the answer is sent. */
export interface WholeAnswerSteps extends StepMoney {
  /**
   * Returns the steps from which this call continues. Returns undefined if there are none, or if another
   * candidate made them.
   */
  earlier(candidate: Candidate): EarlierSteps | undefined;
  /** Stores the state after the steps so far, as JSON, if the call has an idempotency key. Never rejects. */
  store(candidate: Candidate, state: unknown): Promise<void>;
}

/** The most that another step can use. */
export interface StepBound {
  readonly costFemto: ExactInteger;
  /** The part of `costFemto` for the gateway's own tools. */
  readonly toolsFemto?: ExactInteger;
  /** Tokens of the model. Undefined if the step calls no model. */
  readonly tokens?: number;
}

/** Returns the bound of a model call with this limit of units. */
export function stepBound(bound: CostBound, units: number): StepBound {
  return {
    costFemto: plus(bound.fixedFemto, times(units, bound.perUnitFemto)),
    tokens: tokensOfBound(bound, units),
  };
}

export function tokensOfBound(
  { fixedTokens, perUnitTokens }: Pick<CostBound, "fixedTokens" | "perUnitTokens">,
  units: number,
): number {
  return fixedTokens + units * perUnitTokens;
}

/**
 * A reader of the provider's stream, and the answer that processes its pieces. Both use the same kind of
 * pieces.
 */
export interface OpenedStream<Answer extends StreamedAnswer = StreamedAnswer> {
  readonly reader: PieceReader<unknown>;
  readonly answer: Answer;
  /**
   * The content type of the response, if the provider's stream determines it. Otherwise that of the form
   * applies.
   */
  readonly contentType?: string | undefined;
}

/**
 * The parts that differ between the streams of endpoints. Attempts, relay, checkpoints, keepalives, timeouts
 * and charge are shared (stream/streamed-answer.ts). Texts are bytes stored as characters (latin1).
 */
export interface StreamForm<
  Request extends AcceptedRequest,
  Answer extends StreamedAnswer = StreamedAnswer,
> {
  /** The content type of the response. */
  readonly contentType: string;
  /**
   * The text that is sent while the provider is silent. If it is empty, the response begins with the first
   * event, however long that takes, so that every earlier failure gets its own status.
   */
  readonly keepalive: string;
  /** Returns the number of requested choices. The answer is complete when all of them have ended. */
  choices(request: Request): number;
  /**
   * Returns the maximum size of an answer, in bytes. Absent or undefined: the size that the held output
   * tokens can reach.
   */
  maxOutputBytes?(request: Request): number | undefined;
  /** Returns true if the body can be sent to the provider again after its first event. */
  resendsBody?(request: Request): boolean;
  /** Returns true if the first event determines the charge. The headers then contain it. */
  isCostKnown?(request: Request, terms: ModelTerms): boolean;
  /**
   * Calls the provider. Adds the bytes for the client to `output`, in whole frames. Rejects with
   * ProviderFailure if the provider does not stream.
   *
   * @param steps for an answer that needs further provider calls
   */
  open(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedCall<Request>,
    output: ByteBuffer,
    steps: StepMoney,
  ): Promise<OpenedStream<Answer>>;
  /** Returns the usage that the provider has reported so far, or the gateway's own count. */
  usage(answer: Answer, request: Request, terms: ModelTerms): Usage;
  /** Stores the answer, as `PaidEndpoint.storeAnswer` does for whole answers. */
  storeAnswer?(
    answer: Answer,
    admitted: AdmittedCall<Request>,
    facts: AnswerFacts,
  ): Promise<StatementEffect | undefined>;
  /** Returns the text that follows a complete answer after its charge. */
  ending(answer: Answer, request: Request, facts: AnswerFacts): string;
  /**
   * True if nothing of the answer is delivered before its end. A crash or a stop before the end then charges
   * nothing.
   */
  readonly isDeliveredWhole?: boolean;
  /**
   * Returns true if the gateway ended the answer for its own reasons. The client is then charged nothing.
   */
  isWaived?(): boolean;
  /**
   * Returns the text that follows an answer that failed after its first byte. Returns undefined if the
   * connection is to be cut instead.
   *
   * @param answer undefined if no event had arrived
   *
   * @param facts the facts of the charge; undefined if the answer costs nothing
   */
  failure(
    error: GatewayError,
    requestId: string,
    answer: Answer | undefined,
    facts: AnswerFacts | undefined,
  ): string | undefined;
}

/**
 * The maximum size of each object that is stored with a charge, in UTF-8 bytes of JSON. The objects share one
 * database connection with all charges, and they are stored permanently. Larger objects would delay every
 * charge.
 */
export const MAX_RECORDED_BYTES = 16_384;

const RECORDED_OBJECTS = ["metadata", "trace"] as const;

/**
 * Throws 400 if an object is too large to be stored with the charge, or if the request has too many tags.
 */
export function assertRecordable(request: CommonFields): void {
  for (const field of RECORDED_OBJECTS) {
    const value = request[field];
    if (value === undefined || value === null) continue;
    if (Buffer.byteLength(JSON.stringify(value)) <= MAX_RECORDED_BYTES) continue;
    throw new GatewayError(
      "invalid_body",
      `Request body field "${field}": must not take more than ${MAX_RECORDED_BYTES} bytes of JSON.`,
      { param: field },
    );
  }
  assertTagged(request.metadata);
  assertPairs(request.metadata);
}

/** Members of `metadata` that the gateway reads. They have limits of their own. */
const GATEWAY_METADATA: ReadonlySet<string> = new Set(["idempotency_key", "tags"]);
const MAX_PAIRS = 16;
const MAX_PAIR_KEY_CHARACTERS = 64;
const MAX_PAIR_VALUE_CHARACTERS = 512;

/** Throws 400 if metadata has more or longer pairs than OpenAI's API accepts. */
function assertPairs(metadata: CommonFields["metadata"]): void {
  let pairs = 0;
  for (const [key, value] of Object.entries(metadata ?? {})) {
    if (GATEWAY_METADATA.has(key)) continue;
    if (++pairs > MAX_PAIRS) throw tooMuch("metadata", `${MAX_PAIRS} pairs`);
    if (isLonger(key, MAX_PAIR_KEY_CHARACTERS)) {
      throw tooMuch("metadata", `${MAX_PAIR_KEY_CHARACTERS} characters in a key`);
    }
    if (typeof value === "string" && isLonger(value, MAX_PAIR_VALUE_CHARACTERS)) {
      throw tooMuch(`metadata.${key}`, `${MAX_PAIR_VALUE_CHARACTERS} characters`);
    }
  }
}

function isLonger(text: string, characters: number): boolean {
  return text.length > characters && [...text].length > characters;
}

function tooMuch(param: string, most: string): GatewayError {
  const message = `Request body field "${param}": must not have more than ${most}.`;
  return new GatewayError("invalid_body", message, { param });
}

/** Throws 400 if the request has more tags than budgets and usage can count. */
export function assertTagged(metadata: CommonFields["metadata"]): void {
  if (!metadata?.tags || tagsOf(metadata).length <= MAX_TAGS) return;
  throw new GatewayError(
    "invalid_body",
    `Request body field "metadata.tags": must not name more than ${MAX_TAGS} tags.`,
    { param: "metadata.tags" },
  );
}

const RECORDED_FIELDS = ["user", "session_id", "trace", "metadata"] as const;

/** Returns the fields of the request that are recorded for the organization, without the prompt. */
export function recordedDetails(fields: CommonFields): Record<string, unknown> | null {
  let details: Record<string, unknown> | null = null;
  for (const field of RECORDED_FIELDS) {
    const value = fields[field];
    if (value === undefined || value === null) continue;
    details ??= {};
    details[field] = value;
  }
  return details;
}
