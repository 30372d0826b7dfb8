import { edenGC, fullGC } from "bun:jsc";
import { expect, test } from "bun:test";
import { systemClock } from "../../src/lib/clock.ts";
import { DeadlineQueue, type Expiring } from "../../src/lib/deadlines.ts";
import { GcFriendlyMap } from "../../src/lib/gc-friendly-map.ts";
import { IntrusiveList, type ListNode } from "../../src/lib/intrusive-list.ts";

const AT_A_TIME = 32;
const ROUNDS = 40;
const A_ROUND = 25;

/** What is put in and taken out again. */
class Passing implements ListNode<Passing> {
  older: Passing | undefined;
  newer: Passing | undefined;
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

class Deadline implements Expiring {
  older: Expiring | undefined;
  newer: Expiring | undefined;
  dueMs = 0;
  expire(): void {}
}

/**
 * How much of what has been taken out survives a collection of the young: each round puts some in and as
 * many of the earlier ones out, and in between one collection makes old what is in there then.
 */
async function survivors<Item extends object>(
  make: (number: number) => Item,
  put: (item: Item) => void,
  take: (item: Item) => void,
): Promise<number> {
  let number = 0;
  const inside: Item[] = [];
  const refs: WeakRef<Item>[] = [];
  const pass = () => {
    const item = make(number++);
    put(item);
    inside.push(item);
    refs.push(new WeakRef(item));
    if (inside.length > AT_A_TIME) take(inside.shift()!);
  };
  for (let count = 0; count < 1_000; count++) pass();
  await Bun.sleep(0);
  fullGC();
  refs.length = 0;
  for (let round = 0; round < ROUNDS; round++) {
    for (let count = 0; count < A_ROUND; count++) pass();
    // A weak reference keeps its object until the turn of the event loop in which it was made is over.
    await Bun.sleep(0);
    if (round === ROUNDS / 4) edenGC();
  }
  edenGC();
  await Bun.sleep(0);
  const left = refs.filter((ref) => ref.deref() !== undefined).length;
  for (const item of inside) take(item);
  return left;
}

/** Those inside at the one collection and at the other, and a few that the stack seems to hold. */
const MOST = 3 * AT_A_TIME;

test("what left an order of age is garbage of the young", async () => {
  const order = new IntrusiveList<Passing>();
  const left = await survivors(
    (number) => new Passing(`item ${number}`),
    (item) => order.add(item),
    (item) => order.remove(item),
  );
  expect(order.length).toBe(0);
  expect(left).toBeLessThan(MOST);
});

test("so is what left a map of what comes and goes", async () => {
  const map = new GcFriendlyMap<Passing>();
  const left = await survivors(
    (number) => new Passing(`item ${number}`),
    (item) => map.set(item.name, item),
    (item) => map.delete(item.name),
  );
  expect(map.size).toBe(0);
  expect(left).toBeLessThan(MOST);
});

test("so is what had a deadline", async () => {
  const queue = new DeadlineQueue(systemClock, 60_000);
  const left = await survivors(
    () => new Deadline(),
    (item) => queue.set(item),
    (item) => queue.cancel(item),
  );
  expect(queue.entries).toEqual([]);
  expect(left).toBeLessThan(MOST);
});
