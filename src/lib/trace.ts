import { GatewayError } from "./errors.ts";

/** Attributes of a span. Undefined values are omitted. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean | undefined>>;

/** A `traceparent` header of version 00 (W3C Trace Context): version, trace, span, flags. */
const TRACEPARENT = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/**
 * Returns the caller's `traceparent` for the provider, used if the gateway does not trace the request. Returns
 * undefined if the header is invalid.
 */
export function passedTraceparent(headers: Headers): string | undefined {
  const header = headers.get("traceparent");
  return header !== null && TRACEPARENT.test(header) ? header : undefined;
}

/** A timed step of a request. */
export interface TraceSpan {
  /** The `traceparent` header that identifies this span to the called server (W3C Trace Context). */
  readonly traceparent: string;
  /** Records an event at the current time. */
  event(name: string): void;
  /** Ends the span; later calls change nothing. `errorType` is the reason of a failure. */
  end(errorType?: string, attributes?: SpanAttributes): void;
}

/** A provider call in a trace. */
export interface TracedCall {
  readonly providerId: string;
  readonly endpointId: string;
  /** The model with its id in the catalogue. */
  readonly model: { readonly id: string };
  /** The provider's name of the model. */
  readonly upstreamModel: string;
}

/** The trace of a request. Only sampled requests have one. */
export interface RequestTrace {
  /** Records an event of the request at the current time. */
  event(name: string): void;
  /** Begins a step of the request. */
  begin(name: string, attributes?: SpanAttributes): TraceSpan;
  beginCall(call: TracedCall): TraceSpan;
}

/**
 * Records a step that has just begun: as a span if its result is a promise, otherwise as an event. Returns the
 * result.
 */
export function traced<Result>(
  trace: RequestTrace | undefined,
  name: string,
  result: Result,
  attributes?: SpanAttributes,
): Result {
  if (trace === undefined) return result;
  if (result instanceof Promise) endWith(result, trace.begin(name, attributes));
  else trace.event(name);
  return result;
}

/**
 * Ends the span with the work. This is a separate function because a function with closures allocates their
 * context at every call.
 */
function endWith(work: Promise<unknown>, span: TraceSpan): void {
  work.then(
    () => span.end(),
    (error) => span.end(errorType(error)),
  );
}

/** Returns a short name for the kind of an error. */
export function errorType(error: unknown): string {
  if (error instanceof GatewayError) return error.code;
  const kind = (error as { readonly kind?: unknown } | undefined)?.kind;
  return typeof kind === "string" ? kind : "internal";
}
