import { malformed } from "./http-error.ts";

/** Longest line with a chunk's size and its extensions. */
export const MAX_CHUNK_LINE_BYTES = 4_096;
/** Longest trailer section. Trailers are read and dropped. */
const MAX_TRAILER_BYTES = 65_536;

/** Line end, a size of up to seven digits, line end. */
const MAX_PLAIN_LINE_BYTES = 11;
const CR = 13;
const LF = 10;

/**
 * States of the decoder. A chunk is SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF. The chunk of size 0 is followed
 * by TRAILER_START, and then by TRAILER and TRAILER_LF for each field, or by END_LF.
 */
const SIZE = 0;
const EXTENSION = 1;
const SIZE_LF = 2;
const DATA = 3;
const DATA_CR = 4;
const DATA_LF = 5;
const TRAILER_START = 6;
const TRAILER = 7;
const TRAILER_LF = 8;
const END_LF = 9;
const DONE = 10;

/** Removes the chunked transfer coding from a body whose pieces can end anywhere (RFC 9112, 7.1). */
export class ChunkedDecoder {
  #state = SIZE;
  #sizeBytes = 0;
  #remainingBytes = 0;
  #lineBytes = 0;
  #trailerBytes = 0;
  /** The start and end of the payload in the last piece. */
  start = 0;
  end = 0;
  /** The position up to which the last piece was read. Bytes after it do not belong to this body. */
  position = 0;

  get isDone(): boolean {
    return this.#state === DONE;
  }

  /**
   * Finds the payload in `bytes` from `offset` on. Moves the payload of several chunks together in place, because that
   * is cheaper than a copy and than an array for each. Throws HttpError.
   */
  decode(bytes: Buffer, offset: number): void {
    let at = offset;
    let start = offset;
    let end = offset;
    while (at < bytes.length && this.#state !== DONE) {
      if (this.#state !== DATA) {
        at = this.#state === DATA_CR ? this.#nextChunk(bytes, at) : at;
        if (this.#state !== DATA) this.#step(bytes[at++]!);
        continue;
      }
      const length = Math.min(this.#remainingBytes, bytes.length - at);
      if (start === end) start = end = at;
      else if (end !== at) bytes.copyWithin(end, at, at + length);
      end += length;
      at += length;
      this.#remainingBytes -= length;
      if (this.#remainingBytes === 0) this.#state = DATA_CR;
    }
    this.position = at;
    this.start = start;
    this.end = end;
  }

  /**
   * Returns the position of the next chunk's data if the line in front of it has arrived completely and in its usual
   * form. Else returns `start`.
   */
  #nextChunk(bytes: Buffer, start: number): number {
    if (start + MAX_PLAIN_LINE_BYTES > bytes.length) return start;
    if (bytes[start] !== CR || bytes[start + 1] !== LF) return start;
    let at = start + 2;
    let sizeBytes = 0;
    for (let digit = hexDigit(bytes[at]!); digit !== -1; digit = hexDigit(bytes[at]!)) {
      if (++at === start + MAX_PLAIN_LINE_BYTES - 1) return start;
      sizeBytes = sizeBytes * 16 + digit;
    }
    if (sizeBytes === 0 || bytes[at] !== CR || bytes[at + 1] !== LF) return start;
    this.#state = DATA;
    this.#remainingBytes = sizeBytes;
    return at + 2;
  }

  #step(byte: number): void {
    switch (this.#state) {
      case SIZE:
        this.#size(byte);
        return;
      case EXTENSION:
        this.#countLine();
        if (byte === LF) throw malformed("a chunk size that does not end in CRLF");
        if (byte === CR) this.#state = SIZE_LF;
        return;
      case SIZE_LF:
        expect(byte, LF);
        this.#remainingBytes = this.#sizeBytes;
        this.#state = this.#sizeBytes === 0 ? TRAILER_START : DATA;
        return;
      case DATA_CR:
        expect(byte, CR);
        this.#state = DATA_LF;
        return;
      case DATA_LF:
        expect(byte, LF);
        this.#state = SIZE;
        this.#sizeBytes = 0;
        this.#lineBytes = 0;
        return;
      default:
        this.#trailer(byte);
    }
  }

  #size(byte: number): void {
    const digit = hexDigit(byte);
    this.#countLine();
    if (digit !== -1) {
      this.#sizeBytes = this.#sizeBytes * 16 + digit;
      if (this.#sizeBytes > Number.MAX_SAFE_INTEGER) throw malformed("an impossible chunk size");
      return;
    }
    if (this.#lineBytes === 1) throw malformed("a chunk without a size");
    if (byte === CR) this.#state = SIZE_LF;
    // Some servers pad the size with spaces.
    else if (byte === 0x3b || byte === 0x20 || byte === 0x09) this.#state = EXTENSION;
    else throw malformed("an invalid chunk size");
  }

  #trailer(byte: number): void {
    if (++this.#trailerBytes > MAX_TRAILER_BYTES) throw malformed("too many trailers");
    switch (this.#state) {
      case TRAILER_START:
        this.#state = byte === CR ? END_LF : TRAILER;
        return;
      case TRAILER:
        if (byte === LF) throw malformed("a trailer that does not end in CRLF");
        if (byte === CR) this.#state = TRAILER_LF;
        return;
      case TRAILER_LF:
        expect(byte, LF);
        this.#state = TRAILER_START;
        return;
      default:
        expect(byte, LF);
        this.#state = DONE;
    }
  }

  #countLine(): void {
    if (++this.#lineBytes > MAX_CHUNK_LINE_BYTES) throw malformed("a chunk size that is too long");
  }
}

function expect(byte: number, expected: number): void {
  if (byte !== expected) throw malformed("a chunk that is longer than its size");
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}
