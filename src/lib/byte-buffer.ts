/** Spare bytes of a buffer that grows, enough for a few more events. */
const SLACK_BYTES = 2_048;

/**
 * A buffer to which callers append texts, whose characters are bytes (latin1), or write bytes in place. It joins
 * and encodes texts only when bytes follow or the buffer is emptied. Bun's ArrayBufferSink cannot replace it: it
 * encodes texts as UTF-8 and has no writes in place.
 */
export class ByteBuffer {
  #bytes: Buffer | undefined;
  #lengthBytes = 0;
  /** Text that follows the bytes and is not encoded yet. */
  #text = "";

  get length(): number {
    return this.#lengthBytes + this.#text.length;
  }

  add(text: string): void {
    this.#text += text;
  }

  /** Lets `write` write up to `maxBytes` into the buffer from a position on. `write` returns the end position. */
  writeDirectly(maxBytes: number, write: (into: Buffer, at: number) => number): void {
    const into = this.#withRoom(this.#text.length + maxBytes);
    this.#encodeText(into);
    this.#lengthBytes = write(into, this.#lengthBytes);
  }

  /** Empties the buffer and returns its bytes. The returned memory has at most twice their length. */
  take(): Uint8Array {
    if (this.#bytes === undefined) {
      const text = this.#text;
      this.#text = "";
      return Buffer.from(text, "latin1");
    }
    const into = this.#withRoom(this.#text.length);
    this.#encodeText(into);
    const all = into.subarray(0, this.#lengthBytes);
    this.#bytes = undefined;
    this.#lengthBytes = 0;
    // A subarray keeps the whole buffer alive.
    return into.length > 2 * all.length ? new Uint8Array(all) : all;
  }

  #encodeText(into: Buffer): void {
    if (this.#text === "") return;
    this.#lengthBytes += into.write(this.#text, this.#lengthBytes, "latin1");
    this.#text = "";
  }

  #withRoom(moreBytes: number): Buffer {
    const neededBytes = this.#lengthBytes + moreBytes;
    const before = this.#bytes;
    if (before !== undefined && before.length >= neededBytes) return before;
    const doubledBytes = before === undefined ? 0 : before.length * 2;
    const bytes = Buffer.allocUnsafe(Math.max(neededBytes + SLACK_BYTES, doubledBytes));
    before?.copy(bytes, 0, 0, this.#lengthBytes);
    this.#bytes = bytes;
    return bytes;
  }
}
