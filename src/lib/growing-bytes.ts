/** For what follows behind a long run: a few events more. */
const SLACK_BYTES = 2_048;

/**
 * Bytes that are put together from texts, which are bytes kept as characters (latin1), and from what is
 * written in place. Texts alone are joined and encoded once; behind a long one they would be copied anew.
 */
export class GrowingBytes {
  #bytes: Buffer | undefined;
  #lengthBytes = 0;
  /** What follows behind the bytes. */
  #text = "";

  get length(): number {
    return this.#lengthBytes + this.#text.length;
  }

  add(text: string): void {
    this.#text += text;
  }

  /** Room for so many bytes, to be written by `write` into the buffer, from the position on; it returns their end. */
  addInPlace(maxBytes: number, write: (into: Buffer, at: number) => number): void {
    const into = this.#withRoom(this.#text.length + maxBytes);
    this.#encodeText(into);
    this.#lengthBytes = write(into, this.#lengthBytes);
  }

  /** Everything, in memory that is at most twice as long; what comes afterwards begins anew. */
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
    // Whoever keeps it keeps the whole buffer.
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
