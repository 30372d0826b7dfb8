import { crc32 } from "node:zlib";

/** What AWS allows in a message (https://smithy.io/2.0/aws/amazon-eventstream.html); more is a broken stream. */
const MAX_HEADER_BYTES = 128 * 1024;
const MAX_PAYLOAD_BYTES = 24 * 1024 * 1024;
/** The lengths of the message and of its headers, and their checksum. */
const PRELUDE_BYTES = 12;
const CHECKSUM_BYTES = 4;
const LEAST_BYTES = PRELUDE_BYTES + CHECKSUM_BYTES;

/** Of values that have one length, by the number of their type. */
const VALUE_BYTES: readonly (number | undefined)[] = [
  0,
  0,
  1,
  2,
  4,
  8,
  undefined,
  undefined,
  8,
  16,
];
const BYTES_TYPE = 6;
const STRING_TYPE = 7;

export interface EventMessage {
  /** Those whose value is a text. */
  readonly headers: ReadonlyMap<string, string>;
  /** Stays valid only until the next piece is pushed. */
  readonly payload: Uint8Array;
}

/**
 * Splits a stream of `application/vnd.amazon.eventstream` into its messages, whatever pieces it comes in. Throws
 * an Error where the stream is broken; it cannot be read any further then.
 */
export class EventStreamDecoder {
  /** The beginning of a message; its first `#length` bytes are in use. */
  #buffer = Buffer.alloc(0);
  #length = 0;

  push(bytes: Uint8Array, take: (message: EventMessage) => void): void {
    let pending: Buffer;
    if (this.#length === 0) {
      pending = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    } else {
      this.#append(bytes);
      pending = this.#buffer.subarray(0, this.#length);
    }
    let at = 0;
    for (;;) {
      const lengthBytes = messageLength(pending, at);
      if (lengthBytes === undefined || pending.length - at < lengthBytes) break;
      take(decode(pending.subarray(at, at + lengthBytes)));
      at += lengthBytes;
    }
    this.#keep(pending.subarray(at));
  }

  /** Throws where the stream ends in the midst of a message. */
  end(): void {
    if (this.#length > 0) throw new Error("the provider's stream ends in the midst of a message");
  }

  #append(bytes: Uint8Array): void {
    const neededBytes = this.#length + bytes.length;
    if (neededBytes > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.max(neededBytes, 2 * this.#buffer.length));
      this.#buffer.copy(larger, 0, 0, this.#length);
      this.#buffer = larger;
    }
    this.#buffer.set(bytes, this.#length);
    this.#length = neededBytes;
  }

  #keep(rest: Buffer): void {
    // What has been appended and is not complete yet stays where it is.
    if (rest.length === this.#length) return;
    this.#buffer = Buffer.from(rest);
    this.#length = rest.length;
  }
}

/** Of the message that begins there, in bytes; undefined where too little of it has come to tell. */
function messageLength(bytes: Buffer, at: number): number | undefined {
  if (bytes.length - at < PRELUDE_BYTES) return undefined;
  const lengthBytes = bytes.readUInt32BE(at);
  const headerBytes = bytes.readUInt32BE(at + 4);
  if (crc32(bytes.subarray(at, at + 8)) !== bytes.readUInt32BE(at + 8)) {
    throw new Error(
      "the lengths of a message of the provider's stream do not match their checksum",
    );
  }
  const payloadBytes = lengthBytes - headerBytes - LEAST_BYTES;
  if (headerBytes > MAX_HEADER_BYTES || payloadBytes < 0 || payloadBytes > MAX_PAYLOAD_BYTES) {
    throw new Error("the lengths of a message of the provider's stream cannot be true");
  }
  return lengthBytes;
}

function decode(message: Buffer): EventMessage {
  const end = message.length - CHECKSUM_BYTES;
  if (crc32(message.subarray(0, end)) !== message.readUInt32BE(end)) {
    throw new Error("a message of the provider's stream does not match its checksum");
  }
  const headersEnd = PRELUDE_BYTES + message.readUInt32BE(4);
  return {
    headers: headersOf(message.subarray(PRELUDE_BYTES, headersEnd)),
    payload: message.subarray(headersEnd, end),
  };
}

function headersOf(bytes: Buffer): ReadonlyMap<string, string> {
  const headers = new Map<string, string>();
  let at = 0;
  try {
    while (at < bytes.length) {
      const nameEnd = at + 1 + bytes.readUInt8(at);
      const name = bytes.toString("latin1", at + 1, nameEnd);
      const type = bytes.readUInt8(nameEnd);
      at = nameEnd + 1;
      const isLong = type === BYTES_TYPE || type === STRING_TYPE;
      const lengthBytes = isLong ? bytes.readUInt16BE(at) : VALUE_BYTES[type];
      if (lengthBytes === undefined) throw new RangeError("no such type");
      if (isLong) at += 2;
      if (at + lengthBytes > bytes.length) throw new RangeError("past the end");
      if (type === STRING_TYPE) headers.set(name, bytes.toString("utf8", at, at + lengthBytes));
      at += lengthBytes;
    }
  } catch {
    throw new Error("the headers of a message of the provider's stream cannot be read");
  }
  return headers;
}
