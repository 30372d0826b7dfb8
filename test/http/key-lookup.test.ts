import { beforeEach, expect, test } from "bun:test";
import type { Query } from "../../db/client.ts";
import { KeyLookup } from "../../src/http/authentication.ts";
import { VirtualClock } from "../../src/lib/clock.ts";

let clock: VirtualClock;
/** What the table holds, by hash. */
let table: Map<string, string>;
let reads: number;
let lookup: KeyLookup;

beforeEach(() => {
  clock = new VirtualClock();
  table = new Map();
  reads = 0;
  lookup = new KeyLookup({
    clock,
    async read<Result>(query: Query<Result>): Promise<Result> {
      reads++;
      // The rows as they are when the read begins, told when it ends.
      const rows = [...table].map(([hash, id]) => ({ hash, id, is_of_session: false }));
      const sql = Object.assign(() => Promise.resolve(rows), { array: () => undefined });
      await Promise.resolve();
      return query.run(sql as never);
    },
  });
});

test("a thousand wrong secrets that come at once cost a handful of reads", async () => {
  table.set("good", "key_good");
  const wrong = Array.from({ length: 1_000 }, (_, i) => lookup.find(`wrong ${i}`));
  const good = lookup.find("good");
  expect(new Set(await Promise.all(wrong))).toEqual(new Set([undefined]));
  expect(await good).toBe("key_good");
  expect(reads).toBeLessThanOrEqual(4);
});

test("a wrong secret that is tried again at once costs no read", async () => {
  for (let i = 0; i < 100; i++) expect(await lookup.find("wrong")).toBeUndefined();
  expect(reads).toBe(1);
});

test("a key that is made with a secret tried before is found within a second", async () => {
  expect(await lookup.find("early")).toBeUndefined();
  table.set("early", "key_early");
  await clock.advance(1_000);
  expect(await lookup.find("early")).toBe("key_early");
});

test("a key that is made while its secret is looked up is found by whoever asks afterwards", async () => {
  const before = lookup.find("other");
  const during = lookup.find("new");
  table.set("new", "key_new");
  expect(await before).toBeUndefined();
  expect(await during).toBe("key_new");
});

test("a failed read refuses nobody's secret for later", async () => {
  const failing = new KeyLookup({
    clock,
    read: () =>
      reads++ === 0
        ? Promise.reject(new Error("no database"))
        : Promise.resolve(new Map([["a", { id: "key_a", isOfSession: false }]]) as never),
  });
  await expect(failing.find("a")).rejects.toThrow("no database");
  expect(await failing.find("a")).toBe("key_a");
});

test("remembered wrong secrets are bounded: a flood of them forgets the oldest, not the known keys", async () => {
  table.set("good", "key_good");
  await lookup.find("good");
  await Promise.all(Array.from({ length: 9_000 }, (_, i) => lookup.find(`a ${i}`)));
  await Promise.all(Array.from({ length: 9_000 }, (_, i) => lookup.find(`b ${i}`)));
  expect(lookup.cachedKeyId("good")).toBe("key_good");
  const before = reads;
  await lookup.find("a 0");
  expect(reads).toBe(before + 1);
  await lookup.find("b 8999");
  expect(reads).toBe(before + 1);
});
