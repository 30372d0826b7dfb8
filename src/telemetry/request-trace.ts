import { type Attributes, type SpanContext, SpanKind, SpanStatusCode } from "@opentelemetry/api";
import type { Resource } from "@opentelemetry/resources";
import type { ReadableSpan } from "@opentelemetry/sdk-trace";
import { steadyClock } from "../lib/clock.ts";
import { isFields } from "../lib/json.ts";
import type { RequestTrace, SpanAttributes, TracedCall, TraceSpan } from "../lib/trace.ts";
import type { RequestRecord } from "./interface.ts";
import { redactText, shownModel } from "./redact.ts";

type HrTime = [seconds: number, nanos: number];

/** Where ended spans go, and what all of them have. */
export interface SpanSink {
  readonly resource: Resource;
  /** Prompts are recorded. */
  readonly withContent: boolean;
  newSpanId(): string;
  add(span: ReadableSpan): void;
}

const SCOPE = { name: "model-gateway" };
const NOTHING: never[] = [];
const SAMPLED = 1;
const NANO_PER_USD = 1e9;
const MAX_CALLERS_ATTRIBUTES = 32;
const MAX_NAME_CHARACTERS = 64;
const MAX_VALUE_CHARACTERS = 256;
/** Of the prompt: longer ones are cut. */
const MAX_PROMPT_CHARACTERS = 32_768;

/** What the conventions call the work of a route; of others they have no word. */
const OPERATIONS: Readonly<Record<string, string>> = {
  "/v1/chat/completions": "chat",
  "/v1/messages": "chat",
  "/v1/responses": "chat",
  "/v1/embeddings": "embeddings",
  "/v1/images/generations": "generate_content",
  "/v1/images/edits": "generate_content",
  "/v1/images/variations": "generate_content",
};

/** Providers that the conventions name otherwise. */
const PROVIDER_NAMES: Readonly<Record<string, string>> = {
  google: "gcp.gemini",
  gemini: "gcp.gemini",
  vertex: "gcp.vertex_ai",
  azure: "azure.ai.openai",
  bedrock: "aws.bedrock",
  mistral: "mistral_ai",
  xai: "x_ai",
};

/**
 * A span as the exporter takes it. It is made without the SDK's tracer, whose contexts and limits cost as much as the
 * export.
 */
class RecordedSpan implements ReadableSpan, TraceSpan {
  readonly name: string;
  readonly kind: SpanKind;
  readonly parentSpanContext?: SpanContext;
  readonly startTime: HrTime;
  readonly attributes: Attributes;
  readonly resource: Resource;
  readonly instrumentationScope = SCOPE;
  readonly links = NOTHING;
  readonly droppedAttributesCount = 0;
  readonly droppedEventsCount = 0;
  readonly droppedLinksCount = 0;
  events: ReadableSpan["events"] = NOTHING;
  status: ReadableSpan["status"] = { code: SpanStatusCode.UNSET };
  endTime: HrTime = [0, 0];
  duration: HrTime = [0, 0];
  ended = false;
  readonly #startMs: number;
  readonly #context: SpanContext;
  readonly #sink: SpanSink;

  constructor(
    sink: SpanSink,
    traceId: string,
    parent: SpanContext | undefined,
    { name, kind = SpanKind.INTERNAL, startMs = steadyClock.nowMs(), attributes }: SpanStart,
  ) {
    this.#sink = sink;
    this.#context = { traceId, spanId: sink.newSpanId(), traceFlags: SAMPLED };
    this.resource = sink.resource;
    if (parent !== undefined) this.parentSpanContext = parent;
    this.name = name;
    this.kind = kind;
    this.#startMs = startMs;
    this.startTime = hrTime(startMs);
    this.attributes = { ...attributes };
  }

  spanContext(): SpanContext {
    return this.#context;
  }

  get traceparent(): string {
    const { traceId, spanId } = this.#context;
    return `00-${traceId}-${spanId}-01`;
  }

  event(name: string): void {
    if (this.ended) return;
    this.events = [...this.events, { name, time: hrTime(steadyClock.nowMs()) }];
  }

  end(errorType?: string, attributes?: SpanAttributes, isError = errorType !== undefined): void {
    if (this.ended) return;
    this.ended = true;
    Object.assign(this.attributes, attributes);
    if (errorType !== undefined) this.attributes["error.type"] = errorType;
    if (isError) this.status = { code: SpanStatusCode.ERROR };
    const endMs = Math.max(this.#startMs, steadyClock.nowMs());
    this.endTime = hrTime(endMs);
    this.duration = hrTime(endMs - this.#startMs);
    this.#sink.add(this);
  }
}

interface SpanStart {
  readonly name: string;
  readonly kind?: SpanKind;
  readonly startMs?: number;
  readonly attributes?: SpanAttributes | undefined;
}

export interface TraceStart {
  readonly traceId: string;
  /** The caller's span. */
  readonly parent: SpanContext | undefined;
  readonly method: string;
  /** The route's pattern. */
  readonly route: string;
}

/** A request that was sampled: its span, which has those of its steps below it. */
export class RecordedTrace implements RequestTrace {
  readonly #sink: SpanSink;
  readonly #traceId: string;
  readonly #root: RecordedSpan;
  readonly #operation: string;
  readonly #begun: RecordedSpan[] = [];

  constructor(sink: SpanSink, { traceId, parent, method, route }: TraceStart) {
    this.#sink = sink;
    this.#traceId = traceId;
    this.#operation = OPERATIONS[route] ?? route.slice(route.lastIndexOf("/") + 1);
    const name = `${method} ${route}`;
    const attributes = { "http.request.method": method, "http.route": route };
    this.#root = new RecordedSpan(sink, traceId, parent, {
      ...{ name, kind: SpanKind.SERVER, attributes },
    });
  }

  event(name: string): void {
    this.#root.event(name);
  }

  begin(name: string, attributes?: SpanAttributes): TraceSpan {
    return this.#begin({ name, attributes });
  }

  beginCall({ providerId, endpointId, model, upstreamModel }: TracedCall): TraceSpan {
    return this.#begin({
      name: `${this.#operation} ${upstreamModel}`,
      kind: SpanKind.CLIENT,
      attributes: {
        "gen_ai.operation.name": this.#operation,
        "gen_ai.provider.name": PROVIDER_NAMES[providerId] ?? providerId,
        "gen_ai.request.model": upstreamModel,
        "gateway.model": model.id,
        "gateway.endpoint": endpointId,
      },
    });
  }

  #begin(start: SpanStart): RecordedSpan {
    const span = new RecordedSpan(this.#sink, this.#traceId, this.#root.spanContext(), start);
    this.#begun.push(span);
    return span;
  }

  /** The request is over, and with it every step that has not said so. */
  finish(request: RequestRecord): void {
    const { status, errorCode } = request;
    for (const span of this.#begun) span.end(errorCode);
    this.#root.end(errorCode, this.#attributesOf(request), status >= 500);
  }

  #attributesOf(request: RequestRecord): SpanAttributes {
    const { asked, model, provider, costNano, firstTokenMs } = request;
    const { session_id: session, trace } = asked ?? {};
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

function hrTime(ms: number): HrTime {
  const seconds = Math.floor(ms / 1_000);
  return [seconds, Math.round((ms - seconds * 1_000) * 1e6)];
}

/** The members of the field `trace`. */
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

/** Without what looks like a secret. */
function shownText(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return redactText(text.slice(0, MAX_VALUE_CHARACTERS));
}

/** None of a request in which a guardrail has found something: what it redacts is nowhere to be kept. */
function promptOf({ asked, guardrailHits }: RequestRecord): string | undefined {
  const prompt = asked?.messages ?? asked?.input;
  if (prompt === undefined || guardrailHits !== undefined) return undefined;
  return JSON.stringify(prompt).slice(0, MAX_PROMPT_CHARACTERS);
}
