import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { seal, unseal } from "../../src/lib/seal.ts";

const KEY = new Uint8Array(32).fill(1);
const OTHER_KEY = new Uint8Array(32).fill(2);
const OVERHEAD_BYTES = 12 + 16;

describe("what is sealed", () => {
  test("comes out as it went in, of any length", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 5_000 }), (plain) => {
        const sealed = seal(KEY, plain);
        expect(sealed.length).toBe(plain.length + OVERHEAD_BYTES);
        expect(Buffer.from(unseal(KEY, sealed)).equals(Buffer.from(plain))).toBe(true);
      }),
    );
  });

  test("is never sealed the same way twice", () => {
    const plain = Buffer.from("the same");
    expect(
      new Set(Array.from({ length: 100 }, () => Buffer.from(seal(KEY, plain)).toString("hex")))
        .size,
    ).toBe(100);
  });

  test("does not show what it holds", () => {
    expect(Buffer.from(seal(KEY, Buffer.from("secret words"))).includes("secret")).toBe(false);
  });

  test("opens with no other key", () => {
    expect(() => unseal(OTHER_KEY, seal(KEY, Buffer.from("plain")))).toThrow();
  });

  test("does not open where any bit of it was changed", () => {
    const sealed = seal(KEY, Buffer.from("plain"));
    for (let bit = 0; bit < sealed.length * 8; bit++) {
      const changed = Uint8Array.from(sealed);
      changed[bit >> 3]! ^= 1 << (bit & 7);
      expect(() => unseal(KEY, changed)).toThrow();
    }
  });

  test("does not open where it was cut short, to whatever length", () => {
    const sealed = seal(KEY, Buffer.from("plain"));
    for (let length = 0; length < sealed.length; length++) {
      expect(() => unseal(KEY, sealed.subarray(0, length))).toThrow();
    }
    // An empty text whose tag was cut to fewer bytes would be easier to forge.
    const empty = seal(KEY, new Uint8Array());
    for (let length = 0; length < empty.length; length++) {
      expect(() => unseal(KEY, empty.subarray(0, length))).toThrow();
    }
  });
});
