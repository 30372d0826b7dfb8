import type { SpanKind } from "@opentelemetry/api";
import type { SpanAttributes } from "../../lib/trace.ts";

/** A span that has ended. Ids in lower-case hexadecimal digits; times in milliseconds since the epoch. */
export interface EndedSpan {
  readonly spanId: string;
  readonly parentSpanId: string | undefined;
  /** True if the parent is the caller's span. */
  readonly hasRemoteParent: boolean;
  readonly name: string;
  readonly kind: SpanKind;
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: SpanAttributes;
  /** Attributes that are known only at the end of the span. */
  readonly endAttributes: SpanAttributes | undefined;
  readonly errorType: string | undefined;
  readonly isError: boolean;
  readonly events: readonly { readonly name: string; readonly atMs: number }[];
}

const FIRST_BYTES = 16_384;
const MAX_VARINT_BYTES = 10;
const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;
const STATUS_ERROR = 2;
const SAMPLED = 0x1;
/** The flag that says that IS_REMOTE is known. */
const KNOWS_REMOTE = 0x100;
const IS_REMOTE = 0x200;
const WORD = 2 ** 32;
const MAX_INTEGER = 2 ** 63;
const encoder = new TextEncoder();

/**
 * Spans in protobuf, encoded as an export request (opentelemetry/proto/collector/trace/v1).
 * They are written when a request ends, so that its spans need not live until the export. The SDK's
 * serializer visits each span twice.
 */
export class SpanBatch {
  #bytes = new Uint8Array(FIRST_BYTES);
  #view = new DataView(this.#bytes.buffer);
  #at = 0;
  #spans = 0;

  get byteLength(): number {
    return this.#at;
  }

  get spans(): number {
    return this.#spans;
  }

  add(traceId: string, spans: readonly EndedSpan[]): void {
    for (const span of spans) {
      const start = this.#open(2);
      this.#span(traceId, span);
      this.#close(start);
    }
    this.#spans += spans.length;
  }

  /** Empties the batch for its next use. */
  clear(): void {
    this.#at = 0;
    this.#spans = 0;
  }

  /** Returns a copy as ExportTraceServiceRequest. All spans have one resource and one scope. */
  request(resource: Readonly<Record<string, string>>, scope: string): Uint8Array {
    const whole = new SpanBatch();
    const resourceSpans = whole.#open(1);
    const described = whole.#open(1);
    whole.#attributes(1, resource);
    whole.#close(described);
    const scopeSpans = whole.#open(2);
    const named = whole.#open(1);
    whole.#string(1, scope);
    whole.#close(named);
    whole.#copy(this.#bytes.subarray(0, this.#at));
    whole.#close(scopeSpans);
    whole.#close(resourceSpans);
    return whole.#bytes.subarray(0, whole.#at);
  }

  #span(traceId: string, span: EndedSpan): void {
    const { parentSpanId, endAttributes, errorType, events } = span;
    this.#hex(1, traceId);
    this.#hex(2, span.spanId);
    if (parentSpanId !== undefined) this.#hex(4, parentSpanId);
    this.#string(5, span.name);
    this.#integer(6, span.kind + 1);
    this.#time(7, span.startMs);
    this.#time(8, span.endMs);
    this.#attributes(9, span.attributes);
    if (endAttributes !== undefined) this.#attributes(9, endAttributes);
    if (errorType !== undefined) this.#attribute(9, "error.type", errorType);
    for (const { name, atMs } of events) this.#event(name, atMs);
    const status = this.#open(15);
    if (span.isError) this.#integer(3, STATUS_ERROR);
    this.#close(status);
    this.#tag(16, FIXED32);
    this.#reserve(4);
    const isRemote = span.hasRemoteParent ? IS_REMOTE : 0;
    this.#view.setUint32(this.#at, SAMPLED | KNOWS_REMOTE | isRemote, true);
    this.#at += 4;
  }

  #event(name: string, atMs: number): void {
    const start = this.#open(11);
    this.#time(1, atMs);
    this.#string(2, name);
    this.#close(start);
  }

  #attributes(field: number, attributes: SpanAttributes): void {
    for (const name in attributes) {
      const value = attributes[name];
      if (value !== undefined) this.#attribute(field, name, value);
    }
  }

  #attribute(field: number, name: string, value: string | number | boolean): void {
    const start = this.#open(field);
    this.#string(1, name);
    const any = this.#open(2);
    if (typeof value === "string") this.#string(1, value);
    else if (typeof value === "boolean") this.#integer(2, value ? 1 : 0);
    else if (Number.isInteger(value) && Math.abs(value) < MAX_INTEGER) this.#integer(3, value);
    else this.#double(4, value);
    this.#close(any);
    this.#close(start);
  }

  /** Begins a message of unknown length and returns its position. */
  #open(field: number): number {
    this.#tag(field, BYTES);
    this.#reserve(1);
    return this.#at++;
  }

  /**
   * Ends a message: writes its length, and moves its bytes if the length takes more than one byte.
   */
  #close(start: number): void {
    const length = this.#at - start - 1;
    const extra = varintBytes(length) - 1;
    if (extra > 0) {
      this.#reserve(extra);
      this.#bytes.copyWithin(start + 1 + extra, start + 1, this.#at);
    }
    this.#at = start;
    this.#varint(length);
    this.#at += length;
  }

  #string(field: number, text: string): void {
    const { length } = text;
    this.#tag(field, BYTES);
    this.#reserve(MAX_VARINT_BYTES + length);
    const start = this.#at;
    this.#varint(length);
    const bytes = this.#bytes;
    let at = this.#at;
    for (let i = 0; i < length; i++) {
      const unit = text.charCodeAt(i);
      if (unit > 0x7f) {
        this.#at = start;
        this.#unicode(text);
        return;
      }
      bytes[at++] = unit;
    }
    this.#at = at;
  }

  #unicode(text: string): void {
    const encoded = encoder.encode(text);
    this.#varint(encoded.length);
    this.#copy(encoded);
  }

  #copy(bytes: Uint8Array): void {
    this.#reserve(bytes.length);
    this.#bytes.set(bytes, this.#at);
    this.#at += bytes.length;
  }

  #hex(field: number, digits: string): void {
    const length = digits.length / 2;
    this.#tag(field, BYTES);
    this.#reserve(1 + length);
    this.#bytes[this.#at++] = length;
    for (let i = 0; i < digits.length; i += 2) {
      this.#bytes[this.#at++] = (nibble(digits, i) << 4) | nibble(digits, i + 1);
    }
  }

  #integer(field: number, value: number): void {
    this.#tag(field, VARINT);
    this.#reserve(MAX_VARINT_BYTES);
    if (value >= 0) this.#varint(value);
    else {
      let rest = BigInt.asUintN(64, BigInt(value));
      for (; rest > 0x7fn; rest >>= 7n) this.#bytes[this.#at++] = Number(rest & 0x7fn) | 0x80;
      this.#bytes[this.#at++] = Number(rest);
    }
  }

  #double(field: number, value: number): void {
    this.#tag(field, FIXED64);
    this.#reserve(8);
    this.#view.setFloat64(this.#at, value, true);
    this.#at += 8;
  }

  /**
   * Writes a time in nanoseconds. A double cannot represent them, but it can represent the
   * microseconds, from which they are computed.
   */
  #time(field: number, ms: number): void {
    const micros = Math.round(ms * 1_000);
    const low = (micros % WORD) * 1_000;
    const high = Math.floor(micros / WORD) * 1_000 + Math.floor(low / WORD);
    this.#tag(field, FIXED64);
    this.#reserve(8);
    this.#view.setUint32(this.#at, low % WORD, true);
    this.#view.setUint32(this.#at + 4, high, true);
    this.#at += 8;
  }

  #tag(field: number, wire: number): void {
    this.#reserve(2);
    this.#varint((field << 3) | wire);
  }

  #varint(value: number): void {
    let rest = value;
    while (rest > 0x7f) {
      this.#bytes[this.#at++] = (rest % 0x80) | 0x80;
      rest = Math.floor(rest / 0x80);
    }
    this.#bytes[this.#at++] = rest;
  }

  #reserve(length: number): void {
    const needed = this.#at + length;
    if (needed <= this.#bytes.length) return;
    const bytes = new Uint8Array(Math.max(2 * this.#bytes.length, needed));
    bytes.set(this.#bytes);
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer);
  }
}

function varintBytes(value: number): number {
  let length = 1;
  for (let rest = value; rest > 0x7f; rest = Math.floor(rest / 0x80)) length++;
  return length;
}

function nibble(digits: string, index: number): number {
  const unit = digits.charCodeAt(index);
  return unit > 0x39 ? unit - 0x57 : unit - 0x30;
}
