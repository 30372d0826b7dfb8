import type { RequestTrace } from "./trace.ts";

/** A rule of a guardrail that has matched in a request or its answer: never the text. */
export interface GuardrailHit {
  /** Its id. */
  readonly guardrail: string;
  /** Of the rule. */
  readonly type: string;
  readonly action: "block" | "redact";
  readonly direction: "input" | "output";
}

/** Of the body of a request of a model, what is written down where it fails; any value where it was not accepted. */
export interface AskedFields {
  readonly model?: unknown;
  readonly models?: unknown;
  readonly user?: unknown;
  readonly session_id?: unknown;
  /** For traces alone, like the prompt. */
  readonly trace?: unknown;
  readonly messages?: unknown;
  readonly input?: unknown;
  readonly metadata?: unknown;
  /** An object asks for verbose logging of the request. */
  readonly debug?: unknown;
}

/** Whether the request asks for verbose logging, by the field `debug`. */
export function isLoggedVerbosely(asked: AskedFields | undefined): boolean {
  return typeof asked?.debug === "object" && asked.debug !== null;
}

/** Of a body that was not accepted by an endpoint. */
export function askedIn(body: unknown): AskedFields | undefined {
  return typeof body === "object" && body !== null ? body : undefined;
}

/** One call of a provider for a request, and what came of it. */
export interface RecordedTry {
  readonly endpoint: string;
  /** `ok`, or the kind of its failure. */
  readonly result: string;
  /** The provider's HTTP status, where it failed with one. */
  readonly status?: number | undefined;
  /** Until it failed, or the answer began. */
  readonly ms: number;
}

/**
 * How a request was routed. Absent if the first endpoint of its plan answered immediately, unless the request is
 * logged verbosely.
 */
export interface RecordedRouting {
  readonly tries: RecordedTry[];
  /** Endpoints that came last because they were unhealthy. */
  postponed?: readonly string[];
  /** Endpoints that were passed over because as many calls ran there as may. */
  full?: readonly string[];
}

/** What a handler adds to the log line and the metrics of its request. */
export interface RequestFacts {
  /** Headers that the response carries whatever becomes of the request. */
  headers?: Readonly<Record<string, string>>;
  asked?: AskedFields;
  /** Undefined where the request is not traced. */
  trace?: RequestTrace | undefined;
  /** The caller's header, which the provider gets as it is if the request is not traced here. */
  traceparent?: string | undefined;
  model?: string;
  provider?: string;
  promptTokens?: number;
  completionTokens?: number;
  costNano?: bigint;
  /** From the request to its first call of a provider. */
  queuedMs?: number;
  firstTokenMs?: number;
  routing?: RecordedRouting;
  errorCode?: string;
  guardrailHits?: GuardrailHit[];
  /** Set where the request asked for the response cache. */
  cache?: "hit" | "miss";
  /** Status told to logs where it differs from the response's: 499 for a client that went away. */
  status?: number;
  /** A stream reports itself when it ends; until then the request is not logged. */
  isDeferred?: boolean;
  /** Releases what is kept of a long body; called early once no provider will be sent it any more. */
  releaseBody?(): void;
  /** Called by a deferred request when it is over. */
  finish?(): void;
}
