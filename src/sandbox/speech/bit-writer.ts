/** Writes numbers of any bit length, highest bit first. */
export class BitWriter {
  #bytes = new Uint8Array(1024);
  #length = 0;
  #pending = 0;
  #pendingBits = 0;

  /** Number of bits so far. */
  get bitLength(): number {
    return this.#length * 8 + this.#pendingBits;
  }

  /** Writes the lowest `bits` bits of a value. At most 24. */
  write(value: number, bits: number): void {
    this.#pending = (this.#pending << bits) | (value & ((1 << bits) - 1));
    this.#pendingBits += bits;
    while (this.#pendingBits >= 8) {
      this.#pendingBits -= 8;
      this.#append((this.#pending >>> this.#pendingBits) & 0xff);
      this.#pending &= (1 << this.#pendingBits) - 1;
    }
  }

  /** Writes the given number of zeros and then a one. */
  writeUnary(zeros: number): void {
    let remaining = zeros;
    for (; remaining >= 16; remaining -= 16) this.write(0, 16);
    this.write(1, remaining + 1);
  }

  /** Writes zeros to the end of the byte. */
  align(): void {
    if (this.#pendingBits > 0) this.write(0, 8 - this.#pendingBits);
  }

  /** Returns a copy of the complete bytes so far. */
  bytes(): Uint8Array {
    return this.#bytes.slice(0, this.#length);
  }

  #append(byte: number): void {
    if (this.#length === this.#bytes.length) {
      const larger = new Uint8Array(this.#length * 2);
      larger.set(this.#bytes);
      this.#bytes = larger;
    }
    this.#bytes[this.#length++] = byte;
  }
}
