import { expect, test } from "bun:test";
import { MemoryCache } from "../../src/cluster/memory.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { describeSharedCache } from "./shared-cache.ts";

describeSharedCache(() => {
  const clock = new VirtualClock();
  const cache = new MemoryCache(clock);
  return { cache, elsewhere: cache, advance: (byMs) => clock.advance(byMs) };
});

test("where the cache is full, the longest unused value makes room", async () => {
  const cache = new MemoryCache(new VirtualClock(), 3, 1_000);
  for (const key of ["a", "b", "c"]) await cache.set(key, key, 1_000);
  await cache.get("a");
  await cache.set("d", "d", 1_000);
  expect(await cache.get("b")).toBeUndefined();
  expect(await cache.get("a")).toBe("a");
  await cache.set("e", "x".repeat(996), 1_000);
  expect(await cache.get("e")).toHaveLength(996);
  for (const key of ["a", "c", "d"]) {
    expect(await cache.get(key)).toBe(key === "a" ? "a" : undefined);
  }
});
