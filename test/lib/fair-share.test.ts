import { describe, expect, test } from "bun:test";
import { FairQueue } from "../../src/lib/fair-share.ts";
import { openSemaphore } from "../support/open-semaphore.ts";

describe("a fair queue", () => {
  test("serves those that wait in turn, and keeps the order of each", () => {
    const queue = new FairQueue<string>();
    for (const item of ["a1", "a2", "a3", "b1", "c1", "c2"]) queue.push(item[0]!, item);
    const order: string[] = [];
    while (queue.size > 0) order.push(queue.shift()!);
    expect(order).toEqual(["a1", "b1", "c1", "a2", "c2", "a3"]);
    expect(queue.shift()).toBeUndefined();
  });

  test("serves the one with the least under way first, and passes over what may not be taken", () => {
    const queue = new FairQueue<string>();
    for (const item of ["a", "b", "c"]) queue.push(item, item);
    const loads: Record<string, number> = { a: 3, b: 1, c: 2 };
    const loadOf = (item: string) => loads[item]!;
    expect(queue.shift(loadOf, (item) => item !== "b")).toBe("c");
    expect(queue.shift(loadOf)).toBe("b");
    expect(queue.shift(loadOf, () => false)).toBeUndefined();
    expect(queue.size).toBe(1);
  });
});

test("a fair semaphore lets so many in at a time, so many of one, and others before more of it", async () => {
  const semaphore = openSemaphore(3, 2);
  const inside: string[] = [];
  const order: string[] = [];
  const ends = new Map<string, () => void>();
  const run = (name: string) =>
    semaphore.run(name[0]!, async () => {
      inside.push(name);
      order.push(name);
      await new Promise<void>((resolve) => ends.set(name, resolve));
      inside.splice(inside.indexOf(name), 1);
      if (name === "a2") throw new Error("failed");
    });
  let failures = 0;
  const running = ["a1", "a2", "a3", "a4", "b1", "b2"].map((name) =>
    run(name).catch(() => failures++),
  );
  await Bun.sleep(0);
  expect(inside).toEqual(["a1", "a2", "b1"]);
  for (const name of ["a1", "a2", "b1", "b2", "a3", "a4"]) {
    await Bun.sleep(0);
    ends.get(name)!();
    await Bun.sleep(0);
    expect(inside.filter(([key]) => key === "a").length).toBeLessThanOrEqual(2);
    expect(inside.length).toBeLessThanOrEqual(3);
  }
  await Promise.all(running);
  expect(failures).toBe(1);
  expect(order.slice(3)).toEqual(["a3", "b2", "a4"]);
});
