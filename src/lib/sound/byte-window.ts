/** A source of audio bytes. */
export interface ByteSource {
  readonly sizeBytes: number;
  /** Reads bytes from a position on until the buffer is full or the source ends. Returns the number of bytes. */
  readInto(buffer: Uint8Array, position: number): number;
}

/**
 * Thrown for a file that contradicts itself, or whose codec has no known bound on its length. The file is
 * rejected.
 */
export class UnmeasurableSound extends Error {}

const WINDOW_BYTES = 262_144;
const NEAR_BYTES = 16;

/** Reads numbers anywhere in a source, which it reads in large pieces. Bytes after the end read as 0. */
export class ByteWindow {
  readonly sizeBytes: number;
  readonly #source: ByteSource;
  readonly #bytes: Buffer;
  #start = 0;
  #end = 0;

  constructor(source: ByteSource) {
    this.#source = source;
    this.sizeBytes = source.sizeBytes;
    this.#bytes = Buffer.alloc(Math.min(WINDOW_BYTES, source.sizeBytes));
  }

  /** Returns a second window of this source, for a table that is read alternately with others. */
  again(): ByteWindow {
    return new ByteWindow(this.#source);
  }

  byte(position: number): number {
    if (position < this.#start || position >= this.#end) this.#move(position);
    return position < this.#end ? this.#bytes[position - this.#start]! : 0;
  }

  /** Reads a big-endian number of at most 6 bytes. */
  number(position: number, bytes: number): number {
    let value = 0;
    for (let at = 0; at < bytes; at++) value = value * 256 + this.byte(position + at);
    return value;
  }

  littleEndian(position: number, bytes: number): number {
    let value = 0;
    for (let at = bytes - 1; at >= 0; at--) value = value * 256 + this.byte(position + at);
    return value;
  }

  text(position: number, bytes: number): string {
    let text = "";
    for (let at = 0; at < bytes; at++) text += String.fromCharCode(this.byte(position + at));
    return text;
  }

  /** Returns the next position of the bytes from a position on, or the end of the source if they do not occur. */
  find(needle: Uint8Array, from: number): number {
    for (let at = this.findByte(needle[0]!, from); at < this.sizeBytes; ) {
      let length = 1;
      while (length < needle.length && this.byte(at + length) === needle[length]) length++;
      if (length === needle.length) return at;
      at = this.findByte(needle[0]!, at + 1);
    }
    return this.sizeBytes;
  }

  /** Returns the next position of a byte, or the end of the source if it does not occur. */
  findByte(value: number, from: number): number {
    let position = from;
    // If the byte is frequent, a few comparisons are faster than a native search.
    for (const near = from + NEAR_BYTES; position < near; position++) {
      if (this.byte(position) === value) return Math.min(position, this.sizeBytes);
    }
    while (position < this.sizeBytes) {
      this.byte(position);
      const at = this.#bytes.indexOf(value, position - this.#start);
      if (at >= 0 && this.#start + at < this.#end) return this.#start + at;
      position = this.#end;
    }
    return this.sizeBytes;
  }

  #move(position: number): void {
    if (position < 0 || position >= this.sizeBytes) return;
    // Keeps bytes before the position, so that a search that reads a few bytes back stays within the window.
    this.#start = position >= this.#end ? position : Math.max(0, position - WINDOW_BYTES / 2);
    this.#end = this.#start + this.#source.readInto(this.#bytes, this.#start);
  }
}

/** Pieces of a source, in the order in which a container interleaves them, as one source. */
export class JoinedBytes implements ByteSource {
  readonly #bytes: ByteWindow;
  /** Start of each piece in the file. `#ends` has its end in the joined source. */
  readonly #starts: number[] = [];
  readonly #ends: number[] = [];

  constructor(bytes: ByteWindow) {
    this.#bytes = bytes.again();
  }

  get sizeBytes(): number {
    return this.#ends.at(-1) ?? 0;
  }

  add(start: number, length: number): void {
    if (length <= 0) return;
    this.#starts.push(start);
    this.#ends.push(this.sizeBytes + length);
  }

  readInto(buffer: Uint8Array, position: number): number {
    let piece = this.#pieceAt(position);
    let at = 0;
    for (; at < buffer.length && piece < this.#ends.length; piece++) {
      const end = this.#ends[piece]!;
      const begin = piece === 0 ? 0 : this.#ends[piece - 1]!;
      const from = this.#starts[piece]! + position + at - begin;
      const count = Math.min(buffer.length - at, end - position - at);
      for (let ahead = 0; ahead < count; ahead++)
        buffer[at + ahead] = this.#bytes.byte(from + ahead);
      at += count;
    }
    return at;
  }

  #pieceAt(position: number): number {
    let low = 0;
    let high = this.#ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#ends[middle]! <= position) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
