import { parseTraceParent } from "@opentelemetry/core";
import { systemClock } from "../../lib/clock.ts";
import { finishesWithin } from "../../lib/deadlines.ts";
import type { TracingConfig } from "../config/telemetry-settings.ts";
import type { Telemetry } from "./interface.ts";
import { OtlpExporter } from "./otlp-exporter.ts";
import { RecordedTrace, type SpanSink } from "./request-trace.ts";
import { type EndedSpan, SpanBatch } from "./span-batch.ts";

interface TracedRoute {
  readonly method: string;
  /** The route's pattern. */
  readonly path: string;
}

export interface TracingOptions {
  readonly config: TracingConfig;
  readonly instanceId: string;
  readonly telemetry: Pick<Telemetry, "log" | "counter">;
}

/** Bytes of a batch. Collectors accept requests of some megabytes. */
const MAX_BATCH_BYTES = 1_048_576;
/** Bytes of spans that wait for their export. */
const MAX_WAITING_BYTES = 8 * MAX_BATCH_BYTES;
const EXPORT_EVERY_MS = 2_000;
const SAMPLED = 1;
const SCOPE = "model-gateway";
const SPAN_ID_DIGITS = 16;
const TRACE_ID_DIGITS = 32;

/**
 * Traces requests and sends the traces to a collector by OTLP. A caller's decision to sample
 * applies; of other requests a share is sampled. No request waits for the export: spans that the
 * queue or the collector does not accept are dropped and counted.
 */
export class Tracing {
  readonly #sampleRatio: number;
  readonly #ids = new RandomDigits();
  readonly #sink: SpanSink;
  readonly #resource: Readonly<Record<string, string>>;
  readonly #exporter: OtlpExporter<Uint8Array>;
  /** The batches, oldest first. The last one is being filled. */
  readonly #batches: SpanBatch[] = [];
  /** An exported batch whose memory is reused. */
  #spare: SpanBatch | undefined;
  #waitingBytes = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #exporting: Promise<void> | undefined;
  #isClosed = false;
  #exported = 0;
  #dropped = 0;

  constructor({ config, instanceId, telemetry }: TracingOptions) {
    this.#sampleRatio = config.sampleRatio;
    this.#resource = { "service.name": config.serviceName, "service.instance.id": instanceId };
    this.#exporter = new OtlpExporter({
      ...{ collector: config, what: "traces", log: telemetry.log },
      serialize: (bytes) => bytes,
    });
    this.#sink = {
      withContent: config.withContent,
      newSpanId: () => this.#ids.take(SPAN_ID_DIGITS),
      add: (traceId, spans) => this.#add(traceId, spans),
    };
    telemetry.counter(
      "gateway_trace_spans_exported_total",
      "Spans that the collector has accepted",
      () => this.#exported,
    );
    telemetry.counter(
      "gateway_trace_spans_dropped_total",
      "Spans that did not fit into the queue, or that the collector did not accept",
      () => this.#dropped,
    );
  }

  /** Starts the trace of a request. Returns undefined if the request is not sampled. */
  begin(headers: Headers, { method, path: route }: TracedRoute): RecordedTrace | undefined {
    const header = headers.get("traceparent");
    const parent = header === null ? null : parseTraceParent(header);
    const isSampled =
      parent === null
        ? Math.random() < this.#sampleRatio
        : (parent.traceFlags & SAMPLED) === SAMPLED;
    if (!isSampled) return undefined;
    const traceId = parent?.traceId ?? this.#ids.take(TRACE_ID_DIGITS);
    return new RecordedTrace(this.#sink, {
      ...{ traceId, parentSpanId: parent?.spanId, method, route },
    });
  }

  /** Exports the waiting spans. Stops waiting after `withinMs`. */
  async close(withinMs: number): Promise<void> {
    this.#isClosed = true;
    await finishesWithin(this.#export(), systemClock, withinMs);
  }

  #add(traceId: string, spans: readonly EndedSpan[]): void {
    if (this.#isClosed || this.#waitingBytes >= MAX_WAITING_BYTES) {
      this.#dropped += spans.length;
      return;
    }
    let batch = this.#batches.at(-1);
    if (batch === undefined || batch.byteLength >= MAX_BATCH_BYTES) {
      batch = this.#spare ?? new SpanBatch();
      this.#spare = undefined;
      this.#batches.push(batch);
    }
    const before = batch.byteLength;
    batch.add(traceId, spans);
    this.#waitingBytes += batch.byteLength - before;
    if (batch.byteLength >= MAX_BATCH_BYTES) void this.#export();
    else this.#timer ??= setTimeout(() => void this.#export(), EXPORT_EVERY_MS);
  }

  /** Sends one batch after the other until none waits. */
  #export(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#exporting === undefined && this.#batches.length > 0) {
      this.#exporting = this.#exportAll();
    }
    return this.#exporting ?? Promise.resolve();
  }

  async #exportAll(): Promise<void> {
    for (let batch = this.#batches.shift(); batch !== undefined; batch = this.#batches.shift()) {
      this.#waitingBytes -= batch.byteLength;
      const { spans } = batch;
      const request = batch.request(this.#resource, SCOPE);
      batch.clear();
      this.#spare = batch;
      if (await this.#exporter.send(request)) this.#exported += spans;
      else this.#dropped += spans;
    }
    this.#exporting = undefined;
  }
}

const DIGITS_BYTES = 4_096;

/** Random hexadecimal digits, generated many at a time. */
class RandomDigits {
  #digits = "";
  #at = 0;

  take(length: number): string {
    if (this.#at + length > this.#digits.length) {
      this.#digits = crypto.getRandomValues(new Uint8Array(DIGITS_BYTES)).toHex();
      this.#at = 0;
    }
    const start = this.#at;
    this.#at += length;
    return this.#digits.slice(start, this.#at);
  }
}
