/**
 * Frees the memory of a body's pieces at once instead of leaving it to the garbage collector, which is late:
 * it sees small objects, and a fast upload has tens of megabytes of them waiting. A piece is free when each
 * of its bytes has been used for the last time; as each is used once, nobody can still need one then,
 * whoever it went through in between.
 */
export class PieceMemory {
  readonly #unusedBytes = new WeakMap<ArrayBufferLike, number>();

  /** A piece that was read, and that nobody else keeps. One that shares its memory is left alone. */
  lend({ buffer, byteLength }: Uint8Array): void {
    if (byteLength === buffer.byteLength) this.#unusedBytes.set(buffer, byteLength);
  }

  /** These bytes, which may be part of a piece, will not be looked at again. */
  giveBack({ buffer, byteLength }: Uint8Array): void {
    const unusedBytes = this.#unusedBytes.get(buffer);
    if (unusedBytes === undefined) return;
    if (unusedBytes > byteLength) this.#unusedBytes.set(buffer, unusedBytes - byteLength);
    else (buffer as ArrayBuffer).transfer(0);
  }
}
