import { type ExportResult, ExportResultCode, parseTraceParent } from "@opentelemetry/core";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchSpanProcessor, RandomIdGenerator, type ReadableSpan } from "@opentelemetry/sdk-trace";
import type { TracingConfig } from "../config/tracing-settings.ts";
import { systemClock } from "../lib/clock.ts";
import { doneInTime } from "../lib/deadlines.ts";
import type { Telemetry } from "./interface.ts";
import { RecordedTrace, type SpanSink } from "./request-trace.ts";

interface TracedRoute {
  readonly method: string;
  /** Its pattern. */
  readonly path: string;
}

export interface TracingOptions {
  readonly config: TracingConfig;
  readonly instanceId: string;
  readonly telemetry: Pick<Telemetry, "log" | "counter">;
}

/** Ended spans that wait for their export, at most: some megabytes. */
const MAX_QUEUED = 8_192;
const MAX_BATCH = 512;
const EXPORT_EVERY_MS = 2_000;
const EXPORT_TIMEOUT_MS = 5_000;
const SAMPLED = 1;

/**
 * Traces of requests, sent to a collector by OTLP. A caller's decision to sample holds; of other requests a share is
 * sampled. Nothing waits for the export: what the queue does not take, or the collector does not, is dropped and counted.
 */
export class Tracing {
  readonly #sampleRatio: number;
  readonly #ids = new RandomIdGenerator();
  readonly #sink: SpanSink;
  readonly #processor: BatchSpanProcessor;
  readonly #log: Telemetry["log"];
  #waiting = 0;
  #exported = 0;
  #dropped = 0;
  #isFailing = false;

  constructor({ config, instanceId, telemetry }: TracingOptions) {
    const { endpoint, headers, sampleRatio, serviceName, withContent } = config;
    this.#sampleRatio = sampleRatio;
    this.#log = telemetry.log;
    const url = `${endpoint.replace(/\/+$/, "")}/v1/traces`;
    const exporter = new OTLPTraceExporter({
      ...{ url, headers: { ...headers }, timeoutMillis: EXPORT_TIMEOUT_MS },
    });
    this.#processor = new BatchSpanProcessor({
      exporter: {
        export: (spans, done) => {
          this.#waiting -= spans.length;
          exporter.export(spans, (result) => {
            this.#noteResult(spans.length, result);
            done(result);
          });
        },
        forceFlush: () => exporter.forceFlush(),
        shutdown: () => exporter.shutdown(),
      },
      // The bound is kept here, where what is dropped is counted.
      maxQueueSize: MAX_QUEUED + MAX_BATCH,
      maxExportBatchSize: MAX_BATCH,
      scheduledDelayMillis: EXPORT_EVERY_MS,
      exportTimeoutMillis: 2 * EXPORT_TIMEOUT_MS,
    });
    const ids = this.#ids;
    this.#sink = {
      resource: resourceFromAttributes({
        "service.name": serviceName,
        "service.instance.id": instanceId,
      }),
      withContent,
      newSpanId: () => ids.generateSpanId(),
      add: (span) => this.#add(span),
    };
    telemetry.counter(
      "gateway_trace_spans_exported_total",
      "Spans that the collector has taken",
      () => this.#exported,
    );
    telemetry.counter(
      "gateway_trace_spans_dropped_total",
      "Spans that did not fit into the queue, or that the collector did not take",
      () => this.#dropped,
    );
  }

  /** Undefined where the request is not sampled. */
  begin(headers: Headers, { method, path: route }: TracedRoute): RecordedTrace | undefined {
    const header = headers.get("traceparent");
    const parent = header === null ? null : parseTraceParent(header);
    const isSampled =
      parent === null
        ? Math.random() < this.#sampleRatio
        : (parent.traceFlags & SAMPLED) === SAMPLED;
    if (!isSampled) return undefined;
    const traceId = parent?.traceId ?? this.#ids.generateTraceId();
    return new RecordedTrace(this.#sink, { traceId, parent: parent ?? undefined, method, route });
  }

  /** Exports what waits, unless that takes too long. */
  async close(withinMs: number): Promise<void> {
    const flushed = this.#processor.shutdown().catch(() => undefined);
    await doneInTime(flushed, systemClock, withinMs);
  }

  #add(span: ReadableSpan): void {
    if (this.#waiting >= MAX_QUEUED) {
      this.#dropped++;
      return;
    }
    this.#waiting++;
    this.#processor.onEnd(span);
  }

  #noteResult(spans: number, { code, error }: ExportResult): void {
    const hasFailed = code !== ExportResultCode.SUCCESS;
    if (hasFailed) this.#dropped += spans;
    else this.#exported += spans;
    if (hasFailed && !this.#isFailing) {
      this.#log.warn({ err: error }, "the collector takes no traces; they are dropped");
    } else if (!hasFailed && this.#isFailing) this.#log.info("the collector takes traces again");
    this.#isFailing = hasFailed;
  }
}
