import { GatewayError } from "./errors.ts";

/** Undefined ones are left out. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean | undefined>>;

/** A header `traceparent` of version 00 (W3C Trace Context): version, trace, span, flags. */
const TRACEPARENT = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** Returns the caller's `traceparent` for the provider, of a request that is not traced here; undefined if it is invalid. */
export function passedTraceparent(headers: Headers): string | undefined {
  const header = headers.get("traceparent");
  return header !== null && TRACEPARENT.test(header) ? header : undefined;
}

/** A part of a request, with its time. */
export interface TraceSpan {
  /** Names it to the server that it calls, as the header of that name does (W3C Trace Context). */
  readonly traceparent: string;
  /** Notes that something happened now. */
  event(name: string): void;
  /** Once: later calls change nothing. `errorType` says why it failed. */
  end(errorType?: string, attributes?: SpanAttributes): void;
}

/** A call of a provider. */
export interface TracedCall {
  readonly providerId: string;
  readonly endpointId: string;
  /** Its id in the catalogue, and the name that the provider knows it by. */
  readonly model: { readonly id: string };
  readonly upstreamModel: string;
}

/** The trace of a request. Only those that were sampled have one. */
export interface RequestTrace {
  /** Something happened that took no time. */
  event(name: string): void;
  /** A step of the request begins. */
  begin(name: string, attributes?: SpanAttributes): TraceSpan;
  beginCall(call: TracedCall): TraceSpan;
}

/** Notes a step that has just begun: one that is waited for as a span, any other as an event. Returns its result. */
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

/** On its own: a function with closures makes room for what they see whenever it is called. */
function endWith(work: Promise<unknown>, span: TraceSpan): void {
  work.then(
    () => span.end(),
    (error) => span.end(errorType(error)),
  );
}

/** What failed, in a word. */
export function errorType(error: unknown): string {
  if (error instanceof GatewayError) return error.code;
  const kind = (error as { readonly kind?: unknown } | undefined)?.kind;
  return typeof kind === "string" ? kind : "internal";
}
