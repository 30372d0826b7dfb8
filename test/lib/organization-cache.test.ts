import { expect, test } from "bun:test";
import { OrganizationCache } from "../../src/lib/organization-cache.ts";

/** Reads that the test answers, in the order in which they began. */
function open(maxOrganizations = 10) {
  const reads: { id: string; answer(text: string): void; fail(): void }[] = [];
  const cache = new OrganizationCache<{ text: string }>(maxOrganizations, (id) => {
    const { promise, resolve, reject } = Promise.withResolvers<{ text: string }>();
    const answer = (text: string) => resolve({ text });
    reads.push({ id, answer, fail: () => reject(new Error("unreadable")) });
    return promise;
  });
  return { cache, reads };
}

test("what was read is known at once until it is forgotten, and those who ask meanwhile share a read", async () => {
  const { cache, reads } = open();
  const both = [cache.of("one"), cache.of("one")];
  expect(reads).toHaveLength(1);
  reads[0]!.answer("first");
  expect(await Promise.all(both)).toEqual([{ text: "first" }, { text: "first" }]);
  expect(cache.of("one")).toEqual({ text: "first" });
  cache.forget("one");
  const again = cache.of("one");
  reads[1]!.answer("second");
  expect(await again).toEqual({ text: "second" });
  cache.forgetAll();
  expect(cache.of("one")).toBeInstanceOf(Promise);
});

test("what was forgotten while it was read is not kept", async () => {
  const { cache, reads } = open();
  const old = cache.of("one");
  cache.forget("one");
  const fresh = cache.of("one");
  reads[1]!.answer("new");
  await fresh;
  reads[0]!.answer("old");
  await old;
  expect(cache.of("one")).toEqual({ text: "new" });
});

test("a read that fails is told to those who asked, and tried again", async () => {
  const { cache, reads } = open();
  const failed = cache.of("one");
  reads[0]!.fail();
  await expect(failed).rejects.toThrow("unreadable");
  const again = cache.of("one");
  reads[1]!.answer("well");
  expect(await again).toEqual({ text: "well" });
});

test("a read that is asked for behind another begins when that ends, once for all", async () => {
  const { cache, reads } = open();
  const first = cache.of("one");
  const later = [cache.readAgain("one"), cache.readAgain("one")];
  expect(reads).toHaveLength(1);
  reads[0]!.answer("first");
  await first;
  await Promise.resolve();
  expect(reads).toHaveLength(2);
  reads[1]!.answer("second");
  expect(await Promise.all(later)).toEqual([{ text: "second" }, { text: "second" }]);
  expect(cache.of("one")).toEqual({ text: "second" });
});

test("no more organizations are known than fit: the first ones read make room", async () => {
  const { cache, reads } = open(2);
  for (const id of ["one", "two", "three"]) {
    const value = cache.of(id);
    reads.at(-1)!.answer(id);
    await value;
  }
  expect(cache.of("two")).toEqual({ text: "two" });
  expect(cache.of("three")).toEqual({ text: "three" });
  expect(cache.of("one")).toBeInstanceOf(Promise);
});
