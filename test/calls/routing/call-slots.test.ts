import { expect, test } from "bun:test";
import { CallSlots } from "../../../src/inference/call/routing/call-slots.ts";
import { VirtualClock } from "../../../src/lib/clock.ts";
import type { ParallelLimit, ParallelSlots } from "../../../src/platform/cluster/interface.ts";
import { MemorySlots } from "../../../src/platform/cluster/parallel-slots.ts";
import { CallAbort } from "../../../src/providers/transport/call-abort.ts";

const WAIT_MS = 1_000;
const one = [{ id: "one", max: 1 }];
const other = [{ id: "other", max: 1 }];

function queue(parallel: ParallelSlots = new MemorySlots()) {
  const clock = new VirtualClock();
  const slots = new CallSlots({ slots: parallel, clock, maxWaitMs: WAIT_MS });
  const wait = (...options: (readonly ParallelLimit[])[]) =>
    slots.wait("org", options, new CallAbort(), WAIT_MS);
  return { slots, clock, wait };
}

test("calls that wait get places in their order, and none that comes later overtakes them", async () => {
  const { slots, wait } = queue();
  expect(slots.take("org", one)).toBeTrue();
  const order: number[] = [];
  const waiting = [0, 1, 2].map((at) => wait(one).then(() => order.push(at)));
  for (let at = 0; at < 3; at++) {
    slots.release("org", one);
    expect(await slots.take("org", one)).toBeFalse();
    await waiting[at];
  }
  expect(order).toEqual([0, 1, 2]);
  expect(slots.waiting).toBe(0);
  expect(await slots.take("org", one)).toBeFalse();
  slots.release("org", one);
  expect(await slots.take("org", one)).toBeTrue();
});

test("calls that spare half of the places come behind all others, also where there is one place", async () => {
  const { slots, wait } = queue();
  const sparing = one.map((limit) => ({ ...limit, reservesHalf: true }));
  expect(slots.take("org", one)).toBeTrue();
  const order: string[] = [];
  const last = wait(sparing).then(() => order.push("sparing"));
  const first = wait(one).then(() => order.push("other"));
  slots.release("org", one);
  expect(await slots.take("org", sparing)).toBeFalse();
  await first;
  slots.release("org", one);
  await last;
  expect(order).toEqual(["other", "sparing"]);
  expect(slots.waiting).toBe(0);
});

test("a call that waits for several endpoints gets the first that has a place, and says which", async () => {
  const { slots, wait } = queue();
  for (const limits of [one, other]) expect(slots.take("org", limits)).toBeTrue();
  const waiting = wait(one, other);
  slots.release("org", other);
  expect(await waiting).toBe(1);
  expect(await slots.take("org", other)).toBeFalse();
});

test("a place that became free before the wait began is found", async () => {
  const { wait } = queue();
  expect(await wait(one)).toBe(0);
});

test("a call waits no longer than it may, and not at all if 445 of its organization wait for its endpoint", async () => {
  const { slots, clock, wait } = queue();
  slots.take("org", one);
  slots.take("org", other);
  const waiting = Array.from({ length: 445 }, () => wait(one));
  expect(await wait(one)).toBeUndefined();
  const elsewhere = wait(other);
  expect(slots.waiting).toBe(446);
  clock.advance(WAIT_MS - 1);
  slots.release("org", other);
  expect(await elsewhere).toBe(0);
  clock.advance(1);
  expect(new Set(await Promise.all(waiting))).toEqual(new Set([undefined]));
  expect(slots.waiting).toBe(0);
});

test("a place that is granted to a call that was aborted meanwhile is given to the next", async () => {
  const parallel = new MemorySlots();
  let isAsked = Promise.withResolvers<void>();
  const mayAnswer = Promise.withResolvers<void>();
  // As over a network: the answer comes later.
  const slow: ParallelSlots = {
    take: async (limits) => {
      isAsked.resolve();
      await mayAnswer.promise;
      return parallel.take(limits);
    },
    release: (limits) => parallel.release(limits),
    onFree: (listener) => parallel.onFree(listener),
    begin: () => parallel.begin(),
  };
  const { slots, wait } = queue(slow);
  parallel.take(one);
  const abort = new CallAbort();
  const aborted = slots.wait("org", [one], abort, WAIT_MS);
  const next = wait(one);
  isAsked = Promise.withResolvers<void>();
  slots.release("org", one);
  abort.abort();
  mayAnswer.resolve();
  expect(await aborted).toBeUndefined();
  expect(await next).toBe(0);
  expect(parallel.used("one")).toBe(1);
});

test("an organization with several slots leaves slots free for others", async () => {
  const { slots } = queue();
  const many = [{ id: "many", max: 100 }];
  let taken = 0;
  while ((await slots.take("org", many)) === true) taken++;
  expect(taken).toBeLessThan(100);
  expect(await slots.take("another", many)).toBeTrue();
});
