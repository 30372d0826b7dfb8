import { describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import fc from "fast-check";
import {
  type ApiKeyKind,
  generateApiKey,
  hashApiKey,
  keyPrefix,
  parseApiKey,
} from "../../src/lib/api-key-format.ts";

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const kinds = fc.constantFrom<ApiKeyKind>("secret", "management");

/** CRC-32 bit by bit (ISO 3309, reflected polynomial EDB88320), independent of the implementation. */
function crc32(text: string): number {
  let crc = 0xffffffff;
  for (const byte of new TextEncoder().encode(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

function base62(value: number): string {
  let text = "";
  for (let rest = BigInt(value); rest > 0n; rest /= 62n) text = ALPHABET[Number(rest % 62n)] + text;
  return text.padStart(6, "0");
}

function keyOf(prefix: string, body: string): string {
  return prefix + body + base62(crc32(prefix + body));
}

describe("a generated key", () => {
  test("has the prefix of its kind, 32 base62 characters and the CRC-32 of both in 6", () => {
    for (const [kind, prefix] of [
      ["secret", "gateway_sk_"],
      ["management", "gateway_mgmt_"],
    ] as const) {
      const { key } = generateApiKey(kind);
      expect(key).toMatch(new RegExp(`^${prefix}[0-9A-Za-z]{38}$`));
      expect(key).toBe(keyOf(prefix, key.slice(prefix.length, prefix.length + 32)));
    }
  });

  test("parses back to its kind", () => {
    fc.assert(
      fc.property(kinds, (kind) => {
        expect(parseApiKey(generateApiKey(kind).key)).toEqual({ kind });
      }),
    );
  });

  test("is stored as SHA-256 in hexadecimal and shown with four characters of its body", () => {
    const { key, hash, prefix } = generateApiKey("secret");
    expect(hash).toBe(createHash("sha256").update(key).digest("hex"));
    expect(hashApiKey(key)).toBe(hash);
    expect(prefix).toBe(`${key.slice(0, "gateway_sk_".length + 4)}…`);
    const management = generateApiKey("management");
    expect(keyPrefix(management.key)).toMatch(/^gateway_mgmt_[0-9A-Za-z]{4}…$/);
  });

  test("uses every character of the alphabet about equally often", () => {
    const counts = new Map<string, number>();
    for (let round = 0; round < 4000; round++) {
      for (const character of generateApiKey("secret").key.slice(11, 43)) {
        counts.set(character, (counts.get(character) ?? 0) + 1);
      }
    }
    const expected = (4000 * 32) / 62;
    let chiSquare = 0;
    for (const character of ALPHABET) {
      chiSquare += ((counts.get(character) ?? 0) - expected) ** 2 / expected;
    }
    expect(counts.size).toBe(62);
    // 61 degrees of freedom: 140 is passed by chance less than once in 10^7 runs; bytes modulo 62 give thousands.
    expect(chiSquare).toBeLessThan(140);
  });
});

describe("parsing", () => {
  test("accepts every well-formed key, also one whose checksum begins with zeros", () => {
    const padded = "0123456789ABCDEFGHIJKLMNOPQRSTUV";
    expect(parseApiKey(keyOf("gateway_sk_", padded))).toEqual({ kind: "secret" });
    let zeroFirst = "";
    for (let counter = 0; zeroFirst === ""; counter++) {
      const key = keyOf("gateway_mgmt_", String(counter).padStart(32, "A"));
      if (key.at(-6) === "0") zeroFirst = key;
    }
    expect(parseApiKey(zeroFirst)).toEqual({ kind: "management" });
  });

  test("refuses a key with any one character replaced", () => {
    fc.assert(
      fc.property(
        kinds,
        fc.nat(),
        fc.constantFrom(...ALPHABET, "_", "-", " ", "é", "\u0000", "０", "\uD800"),
        (kind, position, character) => {
          const { key } = generateApiKey(kind);
          const index = position % key.length;
          fc.pre(key[index] !== character);
          expect(parseApiKey(key.slice(0, index) + character + key.slice(index + 1))).toBeNull();
        },
      ),
    );
  });

  test("refuses a key with two neighbours swapped", () => {
    fc.assert(
      fc.property(kinds, fc.nat(), (kind, position) => {
        const { key } = generateApiKey(kind);
        const index = position % (key.length - 1);
        fc.pre(key[index] !== key[index + 1]);
        const swapped = key.slice(0, index) + key[index + 1] + key[index] + key.slice(index + 2);
        expect(parseApiKey(swapped)).toBeNull();
      }),
    );
  });

  test("refuses shortened and lengthened keys", () => {
    const { key } = generateApiKey("secret");
    for (let length = 0; length < key.length; length++) {
      expect(parseApiKey(key.slice(0, length))).toBeNull();
    }
    expect(parseApiKey(`${key}0`)).toBeNull();
    expect(parseApiKey(` ${key}`)).toBeNull();
    expect(parseApiKey(`${key}\n`)).toBeNull();
  });

  test("refuses the body of one kind under the prefix of the other", () => {
    const { key } = generateApiKey("secret");
    expect(parseApiKey(key.replace("gateway_sk_", "gateway_mgmt_"))).toBeNull();
  });

  test("never throws, whatever it is given", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: "binary" }), fc.string()), (text) => {
        expect(parseApiKey(text)).toBeNull();
        expect(parseApiKey(`gateway_sk_${text}`)).toBeNull();
      }),
    );
    expect(parseApiKey(`gateway_sk_${"A".repeat(10_000_000)}`)).toBeNull();
  });
});
