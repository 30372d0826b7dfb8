import { SpanKind } from "@opentelemetry/api";
import { steadyClock } from "../../lib/clock.ts";
import { isFields } from "../../lib/json.ts";
import type { RequestTrace, SpanAttributes, TracedCall, TraceSpan } from "../../lib/trace.ts";
import type { RequestRecord } from "./interface.ts";
import { redactText, shownModel } from "./redact.ts";
import type { EndedSpan } from "./span-batch.ts";

/** Receives the spans of ended requests. */
export interface SpanSink {
  /** True if prompts are recorded. */
  readonly withContent: boolean;
  newSpanId(): string;
  add(traceId: string, spans: readonly EndedSpan[]): void;
}

const NOTHING: never[] = [];
const NO_ATTRIBUTES: SpanAttributes = {};
const NANO_PER_USD = 1e9;
const MAX_CALLERS_ATTRIBUTES = 32;
const MAX_NAME_CHARACTERS = 64;
const MAX_VALUE_CHARACTERS = 256;
/** Characters of a prompt. Longer prompts are cut. */
const MAX_PROMPT_CHARACTERS = 32_768;

/** The conventions' name of a route's operation. They have no name for other routes. */
const OPERATIONS: Readonly<Record<string, string>> = {
  "/v1/chat/completions": "chat",
  "/v1/messages": "chat",
  "/v1/responses": "chat",
  "/v1/embeddings": "embeddings",
  "/v1/images/generations": "generate_content",
  "/v1/images/edits": "generate_content",
  "/v1/images/variations": "generate_content",
};

/** Providers that have another name in the conventions. */
const PROVIDER_NAMES: Readonly<Record<string, string>> = {
  google: "gcp.gemini",
  gemini: "gcp.gemini",
  vertex: "gcp.vertex_ai",
  azure: "azure.ai.openai",
  bedrock: "aws.bedrock",
  mistral: "mistral_ai",
  xai: "x_ai",
};

class RecordedSpan implements EndedSpan, TraceSpan {
  readonly name: string;
  readonly kind: SpanKind;
  readonly spanId: string;
  readonly parentSpanId: string | undefined;
  readonly hasRemoteParent: boolean;
  readonly attributes: SpanAttributes;
  readonly startMs = steadyClock.nowMs();
  endMs = 0;
  endAttributes: SpanAttributes | undefined;
  errorType: string | undefined;
  isError = false;
  events: { readonly name: string; readonly atMs: number }[] = NOTHING;
  readonly #trace: RecordedTrace;

  constructor(
    trace: RecordedTrace,
    spanId: string,
    {
      name,
      kind = SpanKind.INTERNAL,
      parentSpanId,
      hasRemoteParent = false,
      attributes,
    }: SpanStart,
  ) {
    this.#trace = trace;
    this.spanId = spanId;
    this.name = name;
    this.kind = kind;
    this.parentSpanId = parentSpanId;
    this.hasRemoteParent = hasRemoteParent;
    this.attributes = attributes ?? NO_ATTRIBUTES;
  }

  get traceparent(): string {
    return `00-${this.#trace.traceId}-${this.spanId}-01`;
  }

  event(name: string): void {
    if (this.endMs !== 0) return;
    const event = { name, atMs: steadyClock.nowMs() };
    if (this.events === NOTHING) this.events = [event];
    else this.events.push(event);
  }

  end(errorType?: string, attributes?: SpanAttributes, isError = errorType !== undefined): void {
    if (this.endMs !== 0) return;
    this.endMs = Math.max(this.startMs, steadyClock.nowMs());
    this.endAttributes = attributes;
    this.errorType = errorType;
    this.isError = isError;
  }
}

interface SpanStart {
  readonly name: string;
  readonly kind?: SpanKind;
  readonly parentSpanId: string | undefined;
  readonly hasRemoteParent?: boolean;
  readonly attributes?: SpanAttributes | undefined;
}

export interface TraceStart {
  readonly traceId: string;
  /** The caller's span. */
  readonly parentSpanId: string | undefined;
  readonly method: string;
  /** The route's pattern. */
  readonly route: string;
}

/** The trace of a sampled request: its span, which has the spans of its steps below it. */
export class RecordedTrace implements RequestTrace {
  readonly traceId: string;
  readonly #sink: SpanSink;
  readonly #root: RecordedSpan;
  readonly #operation: string;
  readonly #spans: RecordedSpan[];

  constructor(sink: SpanSink, { traceId, parentSpanId, method, route }: TraceStart) {
    this.#sink = sink;
    this.traceId = traceId;
    this.#operation = OPERATIONS[route] ?? route.slice(route.lastIndexOf("/") + 1);
    this.#root = new RecordedSpan(this, sink.newSpanId(), {
      name: `${method} ${route}`,
      kind: SpanKind.SERVER,
      ...{ parentSpanId, hasRemoteParent: parentSpanId !== undefined },
      attributes: { "http.request.method": method, "http.route": route },
    });
    this.#spans = [this.#root];
  }

  event(name: string): void {
    this.#root.event(name);
  }

  begin(name: string, attributes?: SpanAttributes): TraceSpan {
    return this.#begin(name, SpanKind.INTERNAL, attributes);
  }

  beginCall({ providerId, endpointId, model, upstreamModel }: TracedCall): TraceSpan {
    return this.#begin(`${this.#operation} ${upstreamModel}`, SpanKind.CLIENT, {
      "gen_ai.operation.name": this.#operation,
      "gen_ai.provider.name": PROVIDER_NAMES[providerId] ?? providerId,
      "gen_ai.request.model": upstreamModel,
      "gateway.model": model.id,
      "gateway.endpoint": endpointId,
    });
  }

  #begin(name: string, kind: SpanKind, attributes: SpanAttributes | undefined): RecordedSpan {
    const parentSpanId = this.#root.spanId;
    const start = { name, kind, parentSpanId, attributes };
    const span = new RecordedSpan(this, this.#sink.newSpanId(), start);
    this.#spans.push(span);
    return span;
  }

  /** Ends the span of the request and all spans that are still open. */
  finish(request: RequestRecord): void {
    const { status, errorCode } = request;
    this.#root.end(errorCode, this.#attributesOf(request), status >= 500);
    for (const span of this.#spans) span.end(errorCode);
    this.#sink.add(this.traceId, this.#spans);
  }

  #attributesOf(request: RequestRecord): SpanAttributes {
    const { request: fields, model, provider, costNano, firstTokenMs } = request;
    const { session_id: session, trace } = fields ?? {};
    return {
      ...callersAttributes(trace),
      "http.response.status_code": request.status,
      "gateway.request_id": request.requestId,
      "gateway.organization_id": request.organizationId,
      "gateway.key_id": request.keyId,
      "gateway.cost_usd": costNano === undefined ? undefined : Number(costNano) / NANO_PER_USD,
      "gateway.cache": request.cache,
      "gateway.first_token_ms": firstTokenMs,
      ...(model !== undefined && {
        "gen_ai.operation.name": this.#operation,
        "gen_ai.response.model": shownModel(model, provider),
        "gen_ai.provider.name": provider && (PROVIDER_NAMES[provider] ?? provider),
        "gen_ai.usage.input_tokens": request.promptTokens,
        "gen_ai.usage.output_tokens": request.completionTokens,
        "gen_ai.conversation.id": shownText(session),
        "gen_ai.input.messages": this.#sink.withContent ? promptOf(request) : undefined,
      }),
    };
  }
}

/** Returns the members of the field `trace` as attributes. */
function callersAttributes(trace: unknown): SpanAttributes {
  if (!isFields(trace)) return {};
  const attributes: Record<string, SpanAttributes[string]> = {};
  let left = MAX_CALLERS_ATTRIBUTES;
  for (const name in trace) {
    if (left-- === 0) break;
    const value = trace[name];
    const shown =
      typeof value === "number" || typeof value === "boolean" ? value : shownText(value);
    attributes[`gateway.trace.${name.slice(0, MAX_NAME_CHARACTERS)}`] = shown;
  }
  return attributes;
}

/** Returns the value as text, without anything that looks like a secret. */
function shownText(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return redactText(text.slice(0, MAX_VALUE_CHARACTERS));
}

/**
 * Returns the prompt. Returns undefined if a guardrail has found something in the request, because
 * redacted text must not be stored.
 */
function promptOf({ request: fields, guardrailHits }: RequestRecord): string | undefined {
  const prompt = fields?.messages ?? fields?.input;
  if (prompt === undefined || guardrailHits !== undefined) return undefined;
  return JSON.stringify(prompt).slice(0, MAX_PROMPT_CHARACTERS);
}
