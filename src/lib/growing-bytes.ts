/** Spare room for a few more events. */
const SLACK_BYTES = 2_048;

/**
 * A buffer that grows by texts, whose characters are bytes (latin1), and by bytes written in place. Texts
 * are joined and encoded only once, when bytes follow or the buffer is taken. Bun's ArrayBufferSink cannot
 * stand in: it encodes texts as UTF-8 and has no writes in place.
 */
export class GrowingBytes {
  #bytes: Buffer | undefined;
  #lengthBytes = 0;
  /** Follows the bytes. */
  #text = "";

  get length(): number {
    return this.#lengthBytes + this.#text.length;
  }

  add(text: string): void {
    this.#text += text;
  }

  /** Has `write` write at most `maxBytes` into the buffer from a position on; it returns their end. */
  addInPlace(maxBytes: number, write: (into: Buffer, at: number) => number): void {
    const into = this.#withRoom(this.#text.length + maxBytes);
    this.#encodeText(into);
    this.#lengthBytes = write(into, this.#lengthBytes);
  }

  /** Empties the buffer and returns its bytes, in memory of at most twice their length. */
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
