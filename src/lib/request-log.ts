import type { RequestTrace } from "./trace.ts";

/** A guardrail rule that matched a request or its answer. It never contains the text. */
export interface GuardrailHit {
  /** Id of the guardrail. */
  readonly guardrail: string;
  /** Type of the rule. */
  readonly type: string;
  readonly action: "block" | "redact";
  readonly direction: "input" | "output";
}

/**
 * The fields of a model request's body that are logged if the request fails. They have any type if the body was
 * not accepted.
 */
export interface LoggedFields {
  readonly model?: unknown;
  readonly models?: unknown;
  readonly user?: unknown;
  readonly session_id?: unknown;
  /** Metadata of the trace. Only traces use it, `messages` and `input`. */
  readonly trace?: unknown;
  readonly messages?: unknown;
  readonly input?: unknown;
  readonly metadata?: unknown;
  /** Debug options. If this is an object, the request is logged verbosely. */
  readonly debug?: unknown;
}

/** Returns true if the request turns on verbose logging with the field `debug`. */
export function isLoggedVerbosely(fields: LoggedFields | undefined): boolean {
  return typeof fields?.debug === "object" && fields.debug !== null;
}

/** Returns the logged fields of a body that no endpoint has accepted. */
export function loggedFieldsOf(body: unknown): LoggedFields | undefined {
  return typeof body === "object" && body !== null ? body : undefined;
}

/** A provider call of a request and its result. */
export interface RecordedTry {
  readonly endpoint: string;
  /** `ok`, or the kind of the failure. */
  readonly result: string;
  /** The provider's HTTP status, if it sent an error status. */
  readonly status?: number | undefined;
  /** Milliseconds until the call failed or the answer began. */
  readonly ms: number;
}

/**
 * The routing of a request. Absent if the first endpoint of the plan answered immediately, unless the request is
 * logged verbosely.
 */
export interface RecordedRouting {
  readonly tries: RecordedTry[];
  /** Endpoints that were tried last because they were unhealthy. */
  postponed?: readonly string[];
  /** Endpoints that were skipped because they were at their concurrency limit. */
  full?: readonly string[];
}

/** The data of a request for its log line, metrics and traces. */
export interface RequestLog {
  request?: LoggedFields;
  /** Undefined if the request is not traced. */
  trace?: RequestTrace | undefined;
  /**
   * The caller's `traceparent` header, which the gateway sends to the provider if it does not trace the request.
   */
  traceparent?: string | undefined;
  model?: string;
  provider?: string;
  promptTokens?: number;
  completionTokens?: number;
  costNano?: bigint;
  /** Milliseconds from the request to its first provider call. */
  queuedMs?: number;
  firstTokenMs?: number;
  routing?: RecordedRouting;
  errorCode?: string;
  guardrailHits?: GuardrailHit[];
  /** Set if the request uses the response cache. */
  cache?: "hit" | "miss";
  /** The logged status, if it differs from the response's: 499 for a client that disconnected. */
  status?: number;
}

/** The parts of a request that outlive its handler. */
export interface RequestLifetime {
  /** Headers of the response, whether the request succeeds or fails. */
  responseHeaders?: Readonly<Record<string, string>>;
  /** True if the request continues after its response has begun, as streams do. It is logged at its end. */
  isDeferred?: boolean;
  /** Releases the memory of a long body. It is called early if no further provider will receive the body. */
  releaseBody?(): void;
  /** Ends a deferred request. */
  finish?(): void;
}
