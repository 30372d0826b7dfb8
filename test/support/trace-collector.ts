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

export interface TraceCollector {
  readonly url: string;
  readonly spans: CollectedSpan[];
  readonly requests: { readonly path: string; readonly headers: Headers; readonly text: string }[];
  stop(): Promise<void>;
}

/** A collector of traces: OTLP over HTTP, in protobuf (opentelemetry/proto/trace/v1/trace.proto). */
export function startTraceCollector(): TraceCollector {
  const spans: CollectedSpan[] = [];
  const requests: TraceCollector["requests"] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const bytes = await request.bytes();
      const { pathname: path } = new URL(request.url);
      requests.push({ path, headers: request.headers, text: new TextDecoder().decode(bytes) });
      for (const resource of parts(bytes, 1)) {
        for (const scope of parts(resource, 2)) spans.push(...parts(scope, 2).map(spanOf));
      }
      return new Response(new Uint8Array(), {
        headers: { "content-type": "application/x-protobuf" },
      });
    },
  });
  return {
    url: `http://127.0.0.1:${server.port}`,
    spans,
    requests,
    stop: () => server.stop(true),
  };
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
    attributes: Object.fromEntries(
      parts(span, 9).map((pair) => [textIn(pair, 1), attributeValue(parts(pair, 2)[0]!)]),
    ),
    events: parts(span, 11).map((event) => textIn(event, 2)),
    isError: status !== undefined && numberIn(status, 3) === 2n,
  };
}

function attributeValue(value: Uint8Array): unknown {
  const [field] = fieldsOf(value);
  if (field === undefined) return undefined;
  const { number, content } = field;
  if (number === 1) return new TextDecoder().decode(content as Uint8Array);
  if (number === 2) return content === 1n;
  if (number === 3) return Number(content);
  const bits = new DataView(new ArrayBuffer(8));
  bits.setBigUint64(0, content as bigint);
  return bits.getFloat64(0);
}

interface Field {
  readonly number: number;
  readonly content: bigint | Uint8Array;
}

const parts = (bytes: Uint8Array, number: number): Uint8Array[] =>
  fieldsOf(bytes).flatMap((field) =>
    field.number === number && field.content instanceof Uint8Array ? [field.content] : [],
  );
const hexIn = (bytes: Uint8Array, number: number) => parts(bytes, number)[0]?.toHex() ?? "";
const textIn = (bytes: Uint8Array, number: number) =>
  new TextDecoder().decode(parts(bytes, number)[0]);

function numberIn(bytes: Uint8Array, number: number): bigint {
  const found = fieldsOf(bytes).find((field) => field.number === number)?.content;
  return typeof found === "bigint" ? found : 0n;
}

/** The fields of a message, in their order (protobuf's encoding). */
function fieldsOf(bytes: Uint8Array): Field[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const fields: Field[] = [];
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++]!;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.length) {
    const tag = Number(varint());
    const number = tag >> 3;
    const wire = tag & 7;
    if (wire === 0) fields.push({ number, content: varint() });
    else if (wire === 2) {
      const length = Number(varint());
      fields.push({ number, content: bytes.subarray(at, at + length) });
      at += length;
    } else {
      const size = wire === 1 ? 8 : 4;
      const content = wire === 1 ? view.getBigUint64(at, true) : BigInt(view.getUint32(at, true));
      fields.push({ number, content });
      at += size;
    }
  }
  return fields;
}
