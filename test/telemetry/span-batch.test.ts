import { expect, test } from "bun:test";
import { ProtobufTraceSerializer } from "@opentelemetry/otlp-transformer";
import { resourceFromAttributes } from "@opentelemetry/resources";
import fc from "fast-check";
import { type EndedSpan, SpanBatch } from "../../src/platform/telemetry/span-batch.ts";
import { fieldsOf } from "../support/protobuf-fields.ts";

const TRACE_ID = "0af7651916cd43dd8448eb211c80319c";
const RESOURCE = { "service.name": "gateway", "service.instance.id": "ins_1" };

/** What the SDK's own serializer makes of the same spans. */
function serialized(spans: readonly EndedSpan[]): Uint8Array {
  const resource = resourceFromAttributes(RESOURCE);
  const instrumentationScope = { name: "model-gateway" };
  const readable = spans.map((span) => ({
    ...{ name: span.name, kind: span.kind, resource, instrumentationScope },
    ...{ links: [], droppedAttributesCount: 0, droppedEventsCount: 0, droppedLinksCount: 0 },
    spanContext: () => ({ traceId: TRACE_ID, spanId: span.spanId, traceFlags: 1 }),
    parentSpanContext: span.parentSpanId && {
      ...{ traceId: TRACE_ID, spanId: span.parentSpanId, traceFlags: 1 },
      isRemote: span.hasRemoteParent,
    },
    startTime: hrTime(span.startMs),
    endTime: hrTime(span.endMs),
    attributes: definedOf({
      ...{ ...span.attributes, ...span.endAttributes },
      "error.type": span.errorType,
    }),
    events: span.events.map(({ name, atMs }) => ({ name, time: hrTime(atMs) })),
    status: { code: span.isError ? 2 : 0 },
  }));
  return ProtobufTraceSerializer.serializeRequest(readable as never)!;
}

const definedOf = (fields: Readonly<Record<string, unknown>>) =>
  Object.fromEntries(Object.entries(fields).filter(([, one]) => one !== undefined));

function hrTime(ms: number): [number, number] {
  const micros = Math.round(ms * 1_000);
  return [Math.floor(micros / 1e6), (micros % 1e6) * 1_000];
}

/** Those whose bytes are a message, by the numbers of the fields that lead to them. */
const MESSAGES = new Set(
  "1 1/1 1/1/1 1/1/1/2 1/2 1/2/1 1/2/2 1/2/2/9 1/2/2/9/2 1/2/2/11 1/2/2/15".split(" "),
);

/** A message as its fields, without numbers that are 0: they need not be written. */
function fieldsIn(bytes: Uint8Array, path = ""): unknown[] {
  return fieldsOf(bytes).flatMap(({ number, content }): unknown[] => {
    if (typeof content === "bigint") return content === 0n ? [] : [[number, content]];
    const inner = path === "" ? `${number}` : `${path}/${number}`;
    return [[number, MESSAGES.has(inner) ? fieldsIn(content, inner) : content.toHex()]];
  });
}

const id = fc.uint8Array({ minLength: 8, maxLength: 8 }).map((bytes) => bytes.toHex());
const text = fc.oneof(fc.string(), fc.string({ unit: "binary", maxLength: 300 }));
const value = fc.oneof(
  text,
  fc.boolean(),
  fc.maxSafeInteger(),
  fc.double(),
  fc.constant(undefined),
);
/** Names at the start and at the end of a span differ. */
const attributes = (prefix: string) =>
  fc.dictionary(
    text.map((name) => prefix + name),
    value,
    { maxKeys: 6, noNullPrototype: true },
  );
/** Of this century, in microseconds. */
const time = fc
  .integer({ min: 946_684_800_000_000, max: 4_102_444_800_000_000 })
  .map((n) => n / 1e3);
const span: fc.Arbitrary<EndedSpan> = fc
  .record({
    spanId: id,
    parentSpanId: fc.option(id, { nil: undefined }),
    hasRemoteParent: fc.boolean(),
    name: text,
    kind: fc.integer({ min: 0, max: 4 }),
    startMs: time,
    endMs: time,
    attributes: attributes("start."),
    endAttributes: fc.option(attributes("end."), { nil: undefined }),
    errorType: fc.constantFrom(undefined, "unavailable"),
    isError: fc.boolean(),
    events: fc.array(fc.record({ name: text, atMs: time }), { maxLength: 3 }),
  })
  .map((one) => ({
    ...one,
    hasRemoteParent: one.hasRemoteParent && one.parentSpanId !== undefined,
  }));

test("spans are written as OpenTelemetry's own serializer writes them", () => {
  const spans = fc.array(span, { minLength: 1, maxLength: 5 });
  const batch = new SpanBatch();
  fc.assert(
    fc.property(spans, (some) => {
      batch.clear();
      for (const one of some) batch.add(TRACE_ID, [one]);
      expect(batch.spans).toBe(some.length);
      expect(fieldsIn(batch.request(RESOURCE, "model-gateway"))).toEqual(
        fieldsIn(serialized(some)),
      );
    }),
    { numRuns: 300 },
  );
});
