import type { BitWriter } from "./bit-writer.ts";

/** A prefix code for the symbols 0 to 255. */
export class PrefixCode {
  readonly #codes = new Uint32Array(256);
  readonly #lengths = new Uint8Array(256);

  /**
   * @param leaves the code words in their order, which determines them: for each its length in base 36 and
   * its symbol in two hexadecimal digits
   */
  constructor(leaves: string) {
    let code = 0;
    let lengthBefore = 0;
    for (const [, lengthDigit = "", symbolDigits = ""] of leaves.matchAll(/(.)(..)/g)) {
      const length = Number.parseInt(lengthDigit, 36);
      const symbol = Number.parseInt(symbolDigits, 16);
      const next = lengthBefore === 0 ? 0 : code + 1;
      code =
        length < lengthBefore ? next >>> (lengthBefore - length) : next << (length - lengthBefore);
      this.#codes[symbol] = code;
      this.#lengths[symbol] = length;
      lengthBefore = length;
    }
  }

  /** Returns the length of a symbol's code, in bits. */
  lengthOf(symbol: number): number {
    return this.#lengths[symbol]!;
  }

  write(bits: BitWriter, symbol: number): void {
    bits.write(this.#codes[symbol]!, this.#lengths[symbol]!);
  }
}
