import { GatewayError } from "./errors.ts";

/** Undefined ones are left out. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean | undefined>>;

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
  /** A step of the request begins. */
  begin(name: string, attributes?: SpanAttributes): TraceSpan;
  beginCall(call: TracedCall): TraceSpan;
}

/** Ends the span of a step when its result is there. Returns the result. */
export function traced<Result>(span: TraceSpan | undefined, result: Result): Result {
  if (span === undefined) return result;
  if (result instanceof Promise) {
    result.then(
      () => span.end(),
      (error) => span.end(errorType(error)),
    );
  } else span.end();
  return result;
}

/** What failed, in a word. */
export function errorType(error: unknown): string {
  if (error instanceof GatewayError) return error.code;
  const kind = (error as { readonly kind?: unknown } | undefined)?.kind;
  return typeof kind === "string" ? kind : "internal";
}
