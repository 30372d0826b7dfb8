/** Writes numbers of any bits, the highest bit first. */
export class BitWriter {
  #bytes = new Uint8Array(1024);
  #length = 0;
  #pending = 0;
  #pendingBits = 0;

  /** All bits so far. */
  get bitLength(): number {
    return this.#length * 8 + this.#pendingBits;
  }

  /** The lowest `bits` of a value, at most 24. */
  write(value: number, bits: number): void {
    this.#pending = (this.#pending << bits) | (value & ((1 << bits) - 1));
    this.#pendingBits += bits;
    while (this.#pendingBits >= 8) {
      this.#pendingBits -= 8;
      this.#append((this.#pending >>> this.#pendingBits) & 0xff);
      this.#pending &= (1 << this.#pendingBits) - 1;
    }
  }

  /** So many zeros and a one. */
  writeUnary(zeros: number): void {
    let left = zeros;
    for (; left >= 16; left -= 16) this.write(0, 16);
    this.write(1, left + 1);
  }

  /** Zeros to the end of the byte. */
  align(): void {
    if (this.#pendingBits > 0) this.write(0, 8 - this.#pendingBits);
  }

  /** The whole bytes so far, copied. */
  bytes(): Uint8Array {
    return this.#bytes.slice(0, this.#length);
  }

  #append(byte: number): void {
    if (this.#length === this.#bytes.length) {
      const grown = new Uint8Array(this.#length * 2);
      grown.set(this.#bytes);
      this.#bytes = grown;
    }
    this.#bytes[this.#length++] = byte;
  }
}
