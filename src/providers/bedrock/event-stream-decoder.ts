import { crc32 } from "node:zlib";

/**
 * Limits of a message by AWS (https://smithy.io/2.0/aws/amazon-eventstream.html), in bytes. A larger message
 * means that the stream is broken.
 */
const MAX_HEADER_BYTES = 128 * 1024;
const MAX_PAYLOAD_BYTES = 24 * 1024 * 1024;
/** The lengths of the message and of its headers, and the checksum of both. */
const PRELUDE_BYTES = 12;
const CHECKSUM_BYTES = 4;
const MIN_MESSAGE_BYTES = PRELUDE_BYTES + CHECKSUM_BYTES;

/** Length of header values of fixed-length types, in bytes, by type number. */
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
  /** Headers whose value is a text. */
  readonly headers: ReadonlyMap<string, string>;
  /** Valid only until the next piece is pushed. */
  readonly payload: Uint8Array;
}

/**
 * Splits a stream of `application/vnd.amazon.eventstream` into its messages, however its pieces are cut.
 * Throws an Error if the stream is broken. It must not be read further then.
 */
export class EventStreamDecoder {
  /** The incomplete message. Its first `#length` bytes are in use. */
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
    let offset = 0;
    for (;;) {
      const lengthBytes = messageLength(pending, offset);
      if (lengthBytes === undefined || pending.length - offset < lengthBytes) break;
      take(decode(pending.subarray(offset, offset + lengthBytes)));
      offset += lengthBytes;
    }
    this.#storeRest(pending.subarray(offset));
  }

  /** Throws if the stream ends in the middle of a message. */
  end(): void {
    if (this.#length > 0) throw new Error("the provider's stream ends in the middle of a message");
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

  #storeRest(rest: Buffer): void {
    // An incomplete message that was appended stays in the buffer.
    if (rest.length === this.#length) return;
    this.#buffer = Buffer.from(rest);
    this.#length = rest.length;
  }
}

/**
 * Returns the length of the message that begins at the offset, in bytes. Returns undefined if fewer bytes
 * than its prelude have arrived.
 */
function messageLength(bytes: Buffer, offset: number): number | undefined {
  if (bytes.length - offset < PRELUDE_BYTES) return undefined;
  const lengthBytes = bytes.readUInt32BE(offset);
  const headerBytes = bytes.readUInt32BE(offset + 4);
  if (crc32(bytes.subarray(offset, offset + 8)) !== bytes.readUInt32BE(offset + 8)) {
    throw new Error(
      "the lengths of a message of the provider's stream do not match their checksum",
    );
  }
  const payloadBytes = lengthBytes - headerBytes - MIN_MESSAGE_BYTES;
  if (headerBytes > MAX_HEADER_BYTES || payloadBytes < 0 || payloadBytes > MAX_PAYLOAD_BYTES) {
    throw new Error("the lengths of a message of the provider's stream are out of range");
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
  let offset = 0;
  try {
    while (offset < bytes.length) {
      const nameEnd = offset + 1 + bytes.readUInt8(offset);
      const name = bytes.toString("latin1", offset + 1, nameEnd);
      const type = bytes.readUInt8(nameEnd);
      offset = nameEnd + 1;
      const isLong = type === BYTES_TYPE || type === STRING_TYPE;
      const lengthBytes = isLong ? bytes.readUInt16BE(offset) : VALUE_BYTES[type];
      if (lengthBytes === undefined) throw new RangeError("no such type");
      if (isLong) offset += 2;
      if (offset + lengthBytes > bytes.length) throw new RangeError("past the end");
      if (type === STRING_TYPE)
        headers.set(name, bytes.toString("utf8", offset, offset + lengthBytes));
      offset += lengthBytes;
    }
  } catch {
    throw new Error("the headers of a message of the provider's stream cannot be read");
  }
  return headers;
}
