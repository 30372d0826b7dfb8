import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { ModelCategory, ModelTerms } from "../../lib/catalogue-model.ts";
import { GatewayError } from "../../lib/errors.ts";
import { type ExactInteger, plus, times } from "../../lib/exact-integer.ts";
import type { ByteBuffer } from "../../lib/growing-bytes.ts";
import { MAX_TAGS, tagsOf } from "../../lib/request-tags.ts";
import type { Usage } from "../../lib/usage.ts";
import type { Capability, PieceReader } from "../../providers/interface.ts";
import type { StreamedAnswer } from "../../providers/streamed-answer.ts";
import type { AdmittedCall, ProviderCall } from "./call.ts";
import type { CallGuard } from "./guard/call-guard.ts";
import type { Candidate, RoutePlan } from "./routing/plan-route.ts";
import type { ProviderPreferences } from "./routing/preferences.ts";

/** What the line from a request to its bill reads of the body itself; the rest is the endpoint's own. */
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
  /** The hash of its body where that is known already. */
  readonly bodyHash?: string | undefined;
}

/** An upper bound of what a request costs at one candidate, in provider cost. */
export interface CostBound {
  /** What does not depend on the number of units. */
  readonly fixedFemto: ExactInteger;
  /** The part of it that the gateway's own tools cost: it is charged for a provider key of the organization, too. */
  readonly toolsFemto?: ExactInteger | undefined;
  /** One more unit of the answer: an output token of each choice. */
  readonly perUnitFemto: ExactInteger;
  /** The limit that the caller set, or the model's own. */
  readonly units: number;
  /** Tokens that count against the rate of the key: those of the prompt, and of one more unit. 0 where none are priced. */
  readonly fixedTokens: number;
  readonly perUnitTokens: number;
}

/**
 * Runs once, when money is held, however the request is answered then. Resolves false where it failed in part, so that
 * the answer is not kept for equal requests. Rejects with the error of the request, and with the signal's reason.
 */
export type Preparation = (call: {
  readonly organizationId: string;
  readonly requestId: string;
  readonly signal: AbortSignal;
}) => Promise<boolean>;

/** What the charge of an answer adds to it. */
export interface AnswerFacts {
  readonly requestId: string;
  readonly candidate: Candidate;
  readonly usage: Usage;
  readonly costUsd: number;
  /** Set if the answer failed after its first step: see `failureOf`. */
  readonly error?: GatewayError | undefined;
}

/**
 * What is special about one billed endpoint. Admission, routing, holds, retries, charges, events and headers
 * are the same for all of them (run-call.ts).
 */
export interface PaidEndpoint<Request extends AcceptedRequest, Answer> {
  /** Method and path; an idempotency key belongs to one of them. */
  readonly route: string;
  /** Of the models that it serves. */
  readonly categories: readonly ModelCategory[];
  /** A capability whose models it serves too, whatever their category. */
  readonly alsoServes?: string;
  /** What a provider must be capable of to serve it. */
  readonly capability: Capability;
  /** Begins the description of its transactions: "Chat completion". */
  readonly title: string;
  /**
   * Checks what its schema cannot. Throws 400.
   * @param guard where guardrails have looked through the body
   */
  accept(body: unknown, headers: Headers, guard?: CallGuard): Request;
  /** What requests have in common that a provider's prompt cache serves; asked where no session is named. */
  affinity?(request: Request): string | undefined;
  /** Takes out candidates that cannot serve the request. Throws 400 where none is left. */
  plan?(request: Request, plan: RoutePlan): RoutePlan;
  /** Whether one call of a provider, in a batch of it, is all that a request needs. Absent: none may stand in batches. */
  standsInBatches?(request: Request): boolean;
  /** What the gateway does itself for the request before a provider is called; undefined for most. */
  preparation?(request: Request): Preparation | undefined;
  /** @param candidate absent where none is available and the model's own terms stand for it */
  bound(request: Request, terms: ModelTerms, candidate?: Candidate): CostBound;
  /** Throws 400 where the request asks for output that guardrails cannot look through. Absent: its output is no text. */
  assertScreenable?(request: Request): void;
  /**
   * A body in which everything that guardrails have to see is text; undefined if the body is so already. Rejects with
   * 400 if that cannot be made.
   */
  readable?(body: unknown): Promise<unknown>;
  /** The limit of units that the caller set: then the hold is not lowered. */
  statedLimit(request: Request): number | undefined;
  /**
   * Rejects with ProviderFailure where there is no answer, or one that cannot be used.
   * @param steps given if `takesSteps` is true
   */
  call(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedCall<Request>,
    steps?: WholeAnswerSteps,
  ): Promise<Answer>;
  /** Whether a whole answer may take several calls of a provider, whose answers come in streams. Absent: it never does. */
  takesSteps?(request: Request): boolean;
  /** What ended an answer after its first step: a ProviderFailure or a GatewayError. Undefined if nothing did. */
  failureOf?(answer: Answer): unknown;
  /** What the provider reports, or what is counted here. */
  usage(answer: Answer, request: Request, terms: ModelTerms): Usage;
  /** The content type of whole answers; JSON where it is left out. A stored result keeps it. */
  answerType?(request: Request, answer: Answer): string;
  /** The body of the response, as text or in UTF-8. */
  answer(answer: Answer, request: Request, facts: AnswerFacts): string | Uint8Array;
  /**
   * Writes what is kept of an answer before its charge, whatever its length; what is returned makes it visible in the
   * charge's transaction. Undefined where nothing is kept.
   */
  keep?(
    answer: Answer,
    admitted: AdmittedCall<Request>,
    facts: AnswerFacts,
  ): Promise<StatementEffect | undefined>;
  /** Serves requests whose field `stream` is true: one form, or that of each request. */
  readonly stream?: StreamForm<Request> | ((request: Request) => StreamForm<Request>);
  /** Its answers can be kept in the response cache. */
  readonly kept?: CacheFormat<Request>;
}

/** What a hit of the response cache adds to the answer that was kept. It costs nothing. */
export interface HitFacts {
  /** Of the request that gets it. */
  readonly requestId: string;
  /** The model that served it. */
  readonly model: string;
  readonly usage: Usage;
  /** Unix seconds. */
  readonly nowSeconds: number;
}

/** Gathers a stream as it is delivered. */
export interface AnswerGatherer {
  /** Never throws. */
  push(bytes: Uint8Array): void;
  /** The whole answer in the form that is kept; undefined where it is none, or is not to be kept. */
  end(): string | undefined;
}

/**
 * How answers of one endpoint are kept for equal requests: in one form, whether they came whole or in a stream, and
 * given again in either.
 */
export interface CacheFormat<Request extends AcceptedRequest> {
  /**
   * What of a request, besides its models, decides about its answer: JSON. Undefined where its answer is never
   * kept, or does more than answer.
   */
  identity(request: Request): Readonly<Record<string, unknown>> | undefined;
  /** Of what a client gets in one piece; undefined where it is not to be kept. Never throws. */
  ofWhole(body: string | Uint8Array): string | undefined;
  whole(kept: string, request: Request, facts: HitFacts): string;
  /** Where the endpoint serves streams. */
  gather?(): AnswerGatherer;
  /** All events of a stream. */
  stream?(kept: string, request: Request, facts: HitFacts): string;
  /** As that of answers that are made. */
  keep?(
    kept: string,
    admitted: AdmittedCall<Request>,
    facts: HitFacts,
  ): Promise<StatementEffect | undefined>;
}

/**
 * The money of an answer that takes several calls of its provider, one behind the other. The first call is covered by
 * the hold as it was admitted.
 */
export interface StepMoney {
  /** Resolves when what the answer has used so far is what this process would be charged for if it died now. */
  checkpoint(): Promise<void>;
  /**
   * Resolves true where the hold covers a further step besides what was used so far, extended where it has to be;
   * false where the money is not there, or the tokens within the rate of the key. Rejects with 429 instead where nothing
   * was used yet.
   */
  reserveStep(candidate: Candidate, usage: Usage, step: StepBound): Promise<boolean>;
}

/** What an earlier call has done under the same idempotency key. */
export interface EarlierSteps {
  /** As it was given to `keep`. */
  readonly state: unknown;
  /** True if it is charged already: only what comes after it is to be charged. */
  readonly isPaid: boolean;
}

/** The same for a whole answer, of which nothing is charged before it leaves. */
export interface WholeAnswerSteps extends StepMoney {
  /** From which this call goes on. Undefined if there is none, or another candidate has done it. */
  earlier(candidate: Candidate): EarlierSteps | undefined;
  /** Stores what the steps so far have come to, JSON, if the call has an idempotency key. Never rejects. */
  keep(candidate: Candidate, state: unknown): Promise<void>;
}

/** The most that a further step can use. */
export interface StepBound {
  readonly costFemto: ExactInteger;
  /** The part of it that the gateway's own tools cost. */
  readonly toolsFemto?: ExactInteger;
  /** Undefined where no model is called. */
  readonly tokens?: number;
}

/** Of a call of a model with this limit of units. */
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

/** What a provider's stream is read with, and what takes the pieces that are read: of one kind. */
export interface OpenedStream {
  readonly reader: PieceReader<unknown>;
  readonly answer: StreamedAnswer;
  /** Of the response, where the provider's stream tells it; else the form's. */
  readonly contentType?: string | undefined;
}

/**
 * What is special about the streams of one endpoint. Attempts, the relay, checkpoints, keepalives, timeouts
 * and the charge are the same for all of them (stream/streamed-answer.ts). Texts are bytes kept as
 * characters (latin1).
 */
export interface StreamForm<Request extends AcceptedRequest> {
  /** Of the response. */
  readonly contentType: string;
  /**
   * Sent while the provider is silent. Where it is empty nothing can be: then the response begins with the
   * first event, however long that takes, so that every failure before it has its status.
   */
  readonly keepalive: string;
  /** How many choices the request asks for: with their ends the answer is whole. */
  choices(request: Request): number;
  /** Bytes beyond which an answer fails; where it is left out, what the held output tokens can take. */
  maxOutputBytes?(request: Request): number | undefined;
  /** True where the provider may be sent the body again behind its first event. */
  keepsBody?(request: Request): boolean;
  /** True where the first event settles the charge, which the headers tell then. */
  isCostKnown?(request: Request, terms: ModelTerms): boolean;
  /**
   * Calls the provider. What the client gets of its pieces is added to `output`, in whole frames. Rejects with
   * ProviderFailure where the provider does not stream.
   * @param steps for an answer that takes further calls of the provider
   */
  open(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedCall<Request>,
    output: ByteBuffer,
    steps: StepMoney,
  ): Promise<OpenedStream>;
  /** What the provider has reported so far, or what is counted here. */
  usage(answer: StreamedAnswer, request: Request, terms: ModelTerms): Usage;
  /** As that of whole answers. */
  keep?(
    answer: StreamedAnswer,
    admitted: AdmittedCall<Request>,
    facts: AnswerFacts,
  ): Promise<StatementEffect | undefined>;
  /** Follows a whole answer when it is charged. */
  ending(answer: StreamedAnswer, request: Request, facts: AnswerFacts): string;
  /**
   * True if nothing of the answer is delivered before its end: then a crash, or a stop of the gateway, before its end
   * charges nothing.
   */
  readonly isDeliveredWhole?: boolean;
  /** True if the gateway has ended the answer for a reason of its own, so that its client is charged nothing. */
  isWaived?(): boolean;
  /**
   * Follows an answer that failed after its first byte; undefined where its connection is cut instead. `answer`
   * is undefined where no event had come.
   * @param facts what it is charged for; undefined if it costs nothing
   */
  failure(
    error: GatewayError,
    requestId: string,
    answer: StreamedAnswer | undefined,
    facts: AnswerFacts | undefined,
  ): string | undefined;
}

/**
 * Of each object that is kept with a charge, in UTF-8 bytes of JSON. They go through the one connection
 * that all charges go through, and stay: a body's worth of them would delay every charge.
 */
export const MAX_RECORDED_BYTES = 16_384;

const RECORDED_OBJECTS = ["metadata", "trace"] as const;

/** Throws 400 where more is to be kept with the charge than is kept, or counted by more tags. */
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

/** Members of `metadata` that mean something to the gateway, and have bounds of their own. */
const GATEWAY_METADATA: ReadonlySet<string> = new Set(["idempotency_key", "tags"]);
const MAX_PAIRS = 16;
const MAX_PAIR_KEY_CHARACTERS = 64;
const MAX_PAIR_VALUE_CHARACTERS = 512;

/** Throws 400 if metadata have more or longer pairs than OpenAI's API takes. */
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

/** Throws 400 where there are more tags than budgets and usage are counted by. */
export function assertTagged(metadata: CommonFields["metadata"]): void {
  if (!metadata?.tags || tagsOf(metadata).length <= MAX_TAGS) return;
  throw new GatewayError(
    "invalid_body",
    `Request body field "metadata.tags": must not name more than ${MAX_TAGS} tags.`,
    { param: "metadata.tags" },
  );
}

const RECORDED_FIELDS = ["user", "session_id", "trace", "metadata"] as const;

/** What is kept of the request for its owner: no prompt. */
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
