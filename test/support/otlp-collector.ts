import { doubleIn, doubleOf, fieldsOf, hexIn, numberIn, parts, textIn } from "./protobuf-fields.ts";

/** A span as a collector gets it. */
export interface CollectedSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** "" for one without. */
  readonly parentSpanId: string;
  readonly name: string;
  readonly kind: number;
  readonly startNano: bigint;
  readonly endNano: bigint;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly events: readonly string[];
  readonly isError: boolean;
}

export interface CollectedMetric {
  readonly name: string;
  readonly description: string;
  readonly kind: "gauge" | "counter" | "histogram";
  readonly points: readonly {
    readonly attributes: Readonly<Record<string, unknown>>;
    readonly startNano: bigint;
    readonly atNano: bigint;
    /** Of a histogram its sum. */
    readonly value: number;
    readonly count: bigint;
    /** Not cumulative. */
    readonly buckets: readonly bigint[];
    readonly bounds: readonly number[];
  }[];
}

export interface OtlpCollector {
  readonly url: string;
  readonly spans: CollectedSpan[];
  /** Of each export, newest last. */
  readonly metrics: (readonly CollectedMetric[])[];
  /** Of the last export. */
  readonly resource: Readonly<Record<string, unknown>>;
  readonly requests: { readonly path: string; readonly headers: Headers; readonly text: string }[];
  stop(): Promise<void>;
}

/** A collector: OTLP over HTTP, in protobuf (opentelemetry/proto/trace/v1, opentelemetry/proto/metrics/v1). */
export function startOtlpCollector({
  trickles = false,
  statuses = [],
}: {
  /** Its answers go on for ever, by a byte now and then. */
  readonly trickles?: boolean;
  /** Of its first answers; taken from as they leave. */
  readonly statuses?: number[];
} = {}): OtlpCollector {
  const spans: CollectedSpan[] = [];
  const metrics: OtlpCollector["metrics"] = [];
  const requests: OtlpCollector["requests"] = [];
  let resource: OtlpCollector["resource"] = {};
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    async fetch(request) {
      const status = statuses.shift();
      if (status !== undefined) {
        return new Response(null, { status, headers: { "retry-after": "0" } });
      }
      const bytes = await request.bytes();
      const { pathname: path } = new URL(request.url);
      requests.push({ path, headers: request.headers, text: new TextDecoder().decode(bytes) });
      for (const ofResource of parts(bytes, 1)) {
        resource = attributesIn(parts(ofResource, 1)[0]!, 1);
        for (const scope of parts(ofResource, 2)) {
          if (path.endsWith("/metrics")) metrics.push(parts(scope, 2).map(metricOf));
          else spans.push(...parts(scope, 2).map(spanOf));
        }
      }
      return new Response(trickles ? trickle() : new Uint8Array(), {
        headers: { "content-type": "application/x-protobuf" },
      });
    },
  });
  return {
    url: `http://127.0.0.1:${server.port}`,
    spans,
    metrics,
    requests,
    get resource() {
      return resource;
    },
    stop: () => server.stop(true),
  };
}

const TRICKLE_MS = 200;

function trickle(): ReadableStream<Uint8Array> {
  return new ReadableStream({
    async pull(controller) {
      await Bun.sleep(TRICKLE_MS);
      controller.enqueue(new Uint8Array(1));
    },
  });
}

function spanOf(span: Uint8Array): CollectedSpan {
  const [status] = parts(span, 15);
  return {
    traceId: hexIn(span, 1),
    spanId: hexIn(span, 2),
    parentSpanId: hexIn(span, 4),
    name: textIn(span, 5),
    kind: Number(numberIn(span, 6)),
    startNano: numberIn(span, 7),
    endNano: numberIn(span, 8),
    attributes: attributesIn(span, 9),
    events: parts(span, 11).map((event) => textIn(event, 2)),
    isError: status !== undefined && numberIn(status, 3) === 2n,
  };
}

const GAUGE = 5;
const SUM = 7;
const HISTOGRAM = 9;
const CUMULATIVE = 2n;

function metricOf(metric: Uint8Array): CollectedMetric {
  const [gauge] = parts(metric, GAUGE);
  const [sum] = parts(metric, SUM);
  const data = gauge ?? sum ?? parts(metric, HISTOGRAM)[0]!;
  if (gauge === undefined && numberIn(data, 2) !== CUMULATIVE) throw new Error("not cumulative");
  if (sum !== undefined && numberIn(sum, 3) !== 1n) throw new Error("a counter that may fall");
  return {
    name: textIn(metric, 1),
    description: textIn(metric, 2),
    kind: gauge !== undefined ? "gauge" : sum !== undefined ? "counter" : "histogram",
    points: parts(data, 1).map((point) => ({
      attributes: attributesIn(point, data === gauge || data === sum ? 7 : 9),
      startNano: numberIn(point, 2),
      atNano: numberIn(point, 3),
      value: doubleIn(point, data === gauge || data === sum ? 4 : 5)!,
      count: numberIn(point, 4),
      buckets: packed(parts(point, 6)[0]),
      bounds: packed(parts(point, 7)[0]).map(doubleOf),
    })),
  };
}

function packed(bytes: Uint8Array = new Uint8Array()): bigint[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.length / 8 }, (_, index) => view.getBigUint64(8 * index, true));
}

function attributesIn(message: Uint8Array, number: number): Record<string, unknown> {
  return Object.fromEntries(
    parts(message, number).map((pair) => [textIn(pair, 1), attributeValue(parts(pair, 2)[0]!)]),
  );
}

function attributeValue(value: Uint8Array): unknown {
  const [field] = fieldsOf(value);
  if (field === undefined) return undefined;
  const { number, content } = field;
  if (number === 1) return new TextDecoder().decode(content as Uint8Array);
  if (number === 2) return content === 1n;
  return number === 3 ? Number(content) : doubleOf(content as bigint);
}
