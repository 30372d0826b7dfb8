import { describe, expect, test } from "bun:test";
import type { SharedCache } from "../../src/cluster/interface.ts";
import { until } from "../support/until.ts";

export interface OwnedCache {
  /** What one instance sees, and what another one does; the same where there is only one. */
  readonly cache: SharedCache;
  readonly elsewhere: SharedCache;
  /** Where time has to be moved for it to pass. */
  advance(byMs: number): void;
}

const LONG_MS = 60_000;
const MAX_VALUE_LENGTH = 1_000_000;

/** What every implementation of the shared cache keeps. Each test has keys of its own. */
export function describeSharedCache(open: () => OwnedCache | Promise<OwnedCache>): void {
  const newKey = () => `key ${crypto.randomUUID()}`;

  describe("a shared cache", () => {
    test("gives what was set last, everywhere, and nothing for another key", async () => {
      const { cache, elsewhere } = await open();
      const key = newKey();
      expect(await cache.get(key)).toBeUndefined();
      for (const value of ["one", "", 'ü✓ {"a": "\\u0000\n"}']) {
        await cache.set(key, value, LONG_MS);
        expect(await elsewhere.get(key)).toBe(value);
      }
      expect(await elsewhere.get(`${key}.`)).toBeUndefined();
    });

    test("forgets a value when its time has passed, not before", async () => {
      const { cache, elsewhere, advance } = await open();
      const [soon, late] = [newKey(), newKey()];
      await cache.set(late, "stays", LONG_MS);
      await cache.set(soon, "goes", 30);
      advance(30);
      await until("it to be gone", async () => (await elsewhere.get(soon)) === undefined);
      expect(await elsewhere.get(late)).toBe("stays");
    });

    test("has nothing after a value was deleted; deleting it again is no error", async () => {
      const { cache, elsewhere } = await open();
      const key = newKey();
      await cache.set(key, "value", LONG_MS);
      await elsewhere.delete(key);
      expect(await cache.get(key)).toBeUndefined();
      await cache.delete(key);
    });

    test("keeps nothing that is above its size or has no time to live, nor what was there before", async () => {
      const { cache } = await open();
      const key = newKey();
      await cache.set(key, "x".repeat(MAX_VALUE_LENGTH), LONG_MS);
      expect((await cache.get(key))?.length).toBe(MAX_VALUE_LENGTH);
      await cache.set(key, "x".repeat(MAX_VALUE_LENGTH + 1), LONG_MS);
      expect(await cache.get(key)).toBeUndefined();
      await cache.set(key, "value", LONG_MS);
      await cache.set(key, "value", 0);
      expect(await cache.get(key)).toBeUndefined();
    });
  });
}
