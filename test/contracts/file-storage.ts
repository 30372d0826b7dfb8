import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { type FileStorage, ObjectMissingError } from "../../src/platform/storage/interface.ts";

export interface StorageUnderTest {
  readonly storage: FileStorage;
  /** How many objects and unfinished uploads there are, by the store's own account. */
  countEverything(): Promise<number>;
  stop(): Promise<void>;
}

const MEGABYTE = 1024 * 1024;
const key = (): string => `obj_${crypto.randomUUID().replaceAll("-", "")}`;

function randomBytes(length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length; at += 65_536) {
    crypto.getRandomValues(bytes.subarray(at, Math.min(at + 65_536, length)));
  }
  return bytes;
}

const hash = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** What every store of files promises. */
export function fileStorageContract(
  name: string,
  start: () => StorageUnderTest | Promise<StorageUnderTest>,
): void {
  let under: StorageUnderTest;
  beforeAll(async () => {
    under = await start();
  });
  afterAll(() => under.stop());

  async function store(bytes: Uint8Array, pieceBytes = 100_003): Promise<string> {
    const stored = key();
    const writer = under.storage.write(stored);
    for (let at = 0; at < bytes.byteLength; at += pieceBytes) {
      await writer.write(bytes.subarray(at, at + pieceBytes));
    }
    await writer.finish();
    return stored;
  }

  async function readAll(from: string, range?: { start: number; end: number }) {
    return new Uint8Array(await new Response(await under.storage.read(from, range)).arrayBuffer());
  }

  describe(`file storage: ${name}`, () => {
    const sizes = [0, 1, 65_536, 8 * MEGABYTE, 8 * MEGABYTE + 1, 17 * MEGABYTE + 5];
    test.each(sizes)("what was written is what is read, with %d bytes", async (size) => {
      const bytes = randomBytes(size);
      const stored = await store(bytes);
      expect(hash(await readAll(stored))).toBe(hash(bytes));
    });

    test("pieces may be larger than what is sent at a time", async () => {
      const bytes = randomBytes(17 * MEGABYTE);
      expect(hash(await readAll(await store(bytes, bytes.byteLength)))).toBe(hash(bytes));
    });

    test("a piece that its owner writes over later is stored as it was", async () => {
      const stored = key();
      const writer = under.storage.write(stored);
      const piece = new Uint8Array(1_000);
      for (let value = 0; value < 200; value++) {
        piece.fill(value);
        await writer.write(piece);
      }
      await writer.finish();
      const read = await readAll(stored);
      for (let value = 0; value < 200; value++) expect(read[value * 1_000 + 999]).toBe(value);
    });

    test("a range is read to the byte", async () => {
      const bytes = randomBytes(300_000);
      const stored = await store(bytes);
      for (const [start, end] of [
        [0, 1],
        [0, 300_000],
        [299_999, 300_000],
        [131_071, 270_001],
        [5, 5],
      ] as const) {
        expect(hash(await readAll(stored, { start, end }))).toBe(hash(bytes.slice(start, end)));
      }
    });

    test("a range beyond the end fails and does not end early as if it were whole", async () => {
      const stored = await store(randomBytes(1_000));
      await expect(readAll(stored, { start: 0, end: 2_000 })).rejects.toThrow();
    });

    test("nothing can be read before the end, nor after giving up, and nothing stays of that", async () => {
      const before = await under.countEverything();
      for (const size of [10, 9 * MEGABYTE, 26 * MEGABYTE]) {
        const stored = key();
        const writer = under.storage.write(stored);
        await writer.write(randomBytes(size));
        await expect(under.storage.read(stored)).rejects.toBeInstanceOf(ObjectMissingError);
        await writer.abort();
        await writer.abort();
        await expect(under.storage.read(stored)).rejects.toBeInstanceOf(ObjectMissingError);
      }
      expect(await under.countEverything()).toBe(before);
    });

    test("giving up after the end takes nothing away", async () => {
      const stored = key();
      const writer = under.storage.write(stored);
      await writer.write(new Uint8Array(5));
      await writer.finish();
      await writer.abort();
      expect(await readAll(stored)).toHaveLength(5);
    });

    test("removing takes away what lies there, and may be repeated", async () => {
      const before = await under.countEverything();
      const stored = await store(randomBytes(1_000));
      await under.storage.remove(stored);
      await under.storage.remove(stored);
      await under.storage.remove(key());
      await expect(under.storage.read(stored)).rejects.toBeInstanceOf(ObjectMissingError);
      expect(await under.countEverything()).toBe(before);
    });

    test("a store that has anything is not empty", async () => {
      await store(randomBytes(1));
      expect(await under.storage.isEmpty()).toBeFalse();
    });

    test("removing takes away what somebody left half written", async () => {
      const before = await under.countEverything();
      const stored = key();
      const writer = under.storage.write(stored);
      await writer.write(randomBytes(17 * MEGABYTE));
      expect(await under.countEverything()).toBe(before + 1);
      await under.storage.remove(stored);
      expect(await under.countEverything()).toBe(before);
      await writer.abort();
    });

    test("what is open is read to its end though it be removed", async () => {
      const bytes = randomBytes(4 * MEGABYTE);
      const stored = await store(bytes);
      const reader = (await under.storage.read(stored)).getReader();
      const first = (await reader.read()).value!;
      await under.storage.remove(stored);
      const pieces = [first];
      for (let next = await reader.read(); !next.done; next = await reader.read()) {
        pieces.push(next.value);
      }
      expect(hash(Buffer.concat(pieces))).toBe(hash(bytes));
    });

    test("a reader that stops asking is sent no more", async () => {
      const stored = await store(randomBytes(MEGABYTE));
      const stream = await under.storage.read(stored);
      const reader = stream.getReader();
      await reader.read();
      await reader.cancel();
      expect((await reader.read()).done).toBe(true);
    });

    test("only plain names are keys", async () => {
      for (const bad of ["../../etc/passwd", "a/b", "", "obj_ÄÖÜ", "obj_1?uploads"]) {
        expect(() => under.storage.write(bad)).toThrow(TypeError);
        await expect(under.storage.remove(bad)).rejects.toThrow(TypeError);
        await expect(under.storage.read(bad)).rejects.toThrow(TypeError);
      }
    });
  });
}
