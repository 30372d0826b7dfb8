import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { DownloadLinks } from "../../src/jobs/files/file-library.ts";
import { Keyring, masterKeyId, seal, unseal } from "../../src/lib/keyring.ts";

const SALT = new Uint8Array(16).fill(3);
const OLD = new Uint8Array(32).fill(1);
const NEW = new Uint8Array(32).fill(2);
const [OLD_ID, NEW_ID] = [masterKeyId(OLD, SALT), masterKeyId(NEW, SALT)];
const PLAIN = Buffer.from("whsec_plain");

describe("a keyring", () => {
  test("opens what each of its keys sealed, and says which", () => {
    const keyring = new Keyring(SALT, [NEW, OLD], OLD_ID);
    for (const [key, keyId] of [
      [OLD, OLD_ID],
      [NEW, NEW_ID],
    ] as const) {
      const opened = keyring.tryOpen(seal(key, PLAIN))!;
      expect(opened.keyId).toBe(keyId);
      expect(Buffer.from(opened.plain)).toEqual(PLAIN);
    }
  });

  test("opens nothing of another key", () => {
    const keyring = new Keyring(SALT, [NEW], NEW_ID);
    expect(keyring.tryOpen(seal(OLD, PLAIN))).toBeUndefined();
    expect(() => keyring.open(seal(OLD, PLAIN))).toThrow("no known master key");
  });

  test("seals under the key that is named, and refuses one that it does not know", () => {
    const keyring = new Keyring(SALT, [NEW, OLD], OLD_ID);
    expect(keyring.tryOpen(keyring.sealUnder(NEW_ID, PLAIN))?.keyId).toBe(NEW_ID);
    expect(() => keyring.sealUnder("0123456789abcdef", PLAIN)).toThrow("not known here");
    expect(() => new Keyring(SALT, [NEW], OLD_ID)).toThrow("not known here");
  });

  test("goes over to another known key when it is told, and to no unknown one", () => {
    const keyring = new Keyring(SALT, [NEW, OLD], OLD_ID);
    keyring.noteSealing("0123456789abcdef");
    expect(keyring.sealingId).toBe(OLD_ID);
    keyring.noteSealing(NEW_ID);
    expect(keyring.sealingKey).toEqual(NEW);
  });

  test("gives a key another name in another database, and shows nothing of it", () => {
    expect(masterKeyId(OLD, new Uint8Array(16))).not.toBe(OLD_ID);
    expect(OLD_ID).toMatch(/^[0-9a-f]{16}$/);
    const shown = Bun.inspect(new Keyring(SALT, [OLD], OLD_ID));
    expect(shown).not.toContain(Buffer.from(OLD).toString("base64"));
    expect(shown).not.toContain("1, 1, 1, 1");
  });
});

test("a download link of either key is valid while both are known, and ends with its key", () => {
  const nowMs = Date.now();
  const before = new DownloadLinks(new Keyring(SALT, [OLD], OLD_ID)).sign("file_1", nowMs);
  const rotating = new Keyring(SALT, [NEW, OLD], OLD_ID);
  const links = new DownloadLinks(rotating);
  expect(links.isValid("file_1", before, nowMs)).toBe(true);
  rotating.noteSealing(NEW_ID);
  expect(links.isValid("file_1", before, nowMs)).toBe(true);
  const after = links.sign("file_1", nowMs);
  const alone = new DownloadLinks(new Keyring(SALT, [NEW], NEW_ID));
  expect(alone.isValid("file_1", after, nowMs)).toBe(true);
  expect(alone.isValid("file_1", before, nowMs)).toBe(false);
  expect(links.isValid("file_2", after, nowMs)).toBe(false);
});

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
