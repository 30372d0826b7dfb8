/** Where the bytes of a sound come from. */
export interface ByteSource {
  readonly sizeBytes: number;
  /** Reads at most as many bytes as the buffer holds from a position on; returns how many. */
  readInto(buffer: Uint8Array, position: number): number;
}

const WINDOW_BYTES = 262_144;

/** Reads single numbers anywhere in a source, which is read in large pieces. What is behind its end is 0. */
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

  byte(position: number): number {
    if (position < this.#start || position >= this.#end) this.#move(position);
    return position < this.#end ? this.#bytes[position - this.#start]! : 0;
  }

  /** Big-endian, of at most 6 bytes. */
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

  /** The next place of the bytes from a position on; the end of the source where they are not there. */
  find(needle: Uint8Array, from: number): number {
    for (let position = from; position < this.sizeBytes; ) {
      this.byte(position);
      const at = this.#bytes
        .subarray(0, this.#end - this.#start)
        .indexOf(needle, position - this.#start);
      if (at >= 0) return this.#start + at;
      // A part of them may stand at the end of this piece.
      const next = this.#end - needle.length + 1;
      if (this.#end >= this.sizeBytes) break;
      position = Math.max(position + 1, next);
      this.#move(position);
    }
    return this.sizeBytes;
  }

  #move(position: number): void {
    if (position < 0 || position >= this.sizeBytes) return;
    this.#start = position;
    this.#end = position + this.#source.readInto(this.#bytes, position);
  }
}
