import { beforeEach, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { VirtualClock } from "../../src/lib/clock.ts";
import { DeadlineQueue, finishesBeforeDeadline, finishesWithin } from "../../src/lib/deadlines.ts";

const DELAY_MS = 1_000;

let clock: VirtualClock;
let queue: DeadlineQueue;
let ran: string[];
beforeEach(() => {
  clock = new VirtualClock();
  queue = new DeadlineQueue(clock, DELAY_MS);
  ran = [];
});

const add = (name: string) => queue.add(() => void ran.push(name));

describe("a deadline", () => {
  test("runs once, when the whole delay has passed", () => {
    add("a");
    clock.advance(DELAY_MS - 1);
    expect(ran).toEqual([]);
    clock.advance(1);
    expect(ran).toEqual(["a"]);
    clock.advance(10 * DELAY_MS);
    expect(ran).toEqual(["a"]);
  });

  test("that is cancelled never runs, and may be cancelled again at any time", () => {
    const a = add("a");
    add("b");
    a.cancel();
    a.cancel();
    clock.advance(DELAY_MS);
    expect(ran).toEqual(["b"]);
    a.cancel();
  });

  test("of an object is one at a time, expires once, and not where it was cancelled", () => {
    const expired: string[] = [];
    const [kept, cancelled] = ["kept", "cancelled"].map((name) => ({
      older: undefined,
      newer: undefined,
      dueMs: 0,
      expire: () => void expired.push(name),
    }));
    queue.set(kept!);
    queue.set(cancelled!);
    clock.advance(DELAY_MS / 2);
    queue.cancel(cancelled!);
    queue.cancel(cancelled!);
    clock.advance(DELAY_MS);
    expect(expired).toEqual(["kept"]);
    queue.set(kept!);
    queue.expireAll();
    clock.advance(DELAY_MS);
    expect(expired).toEqual(["kept", "kept"]);
  });

  test("may be set and cancelled by one that runs", () => {
    const late = add("late");
    queue.add(() => {
      ran.push("first");
      add("second");
      victim.cancel();
    });
    const victim = add("victim");
    late.cancel();
    clock.advance(DELAY_MS);
    expect(ran).toEqual(["first"]);
    clock.advance(DELAY_MS);
    expect(ran).toEqual(["first", "second"]);
  });

  test("runs at its own time, whatever else is set and cancelled", () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.record({
            gapMs: fc.nat({ max: 700 }),
            cancelAfterMs: fc.option(fc.nat({ max: 2_000 })),
          }),
          { maxLength: 40 },
        ),
        (steps) => {
          const world = new VirtualClock(0);
          const deadlines = new DeadlineQueue(world, DELAY_MS);
          const ranAtMs = new Map<number, number>();
          const expected = new Map<number, number>();
          for (const [i, { gapMs, cancelAfterMs }] of steps.entries()) {
            world.advance(gapMs);
            const deadline = deadlines.add(() => void ranAtMs.set(i, world.nowMs()));
            if (cancelAfterMs !== null) world.after(cancelAfterMs, () => deadline.cancel());
            if (cancelAfterMs === null || cancelAfterMs > DELAY_MS) {
              expected.set(i, world.nowMs() + DELAY_MS);
            } else ranAtMs.delete(i);
          }
          world.advance(10_000);
          for (const [i, atMs] of expected) expect(ranAtMs.get(i)).toBe(atMs);
          for (const [i, { cancelAfterMs }] of steps.entries()) {
            if (cancelAfterMs !== null && cancelAfterMs < DELAY_MS)
              expect(ranAtMs.has(i)).toBe(false);
          }
        },
      ),
    );
  });
});

test("where the clock is set back by an hour nothing waits for an hour", () => {
  const real = new VirtualClock(0);
  let setMs = 0;
  const deadlines = new DeadlineQueue(
    { nowMs: () => real.nowMs() + setMs, after: (delayMs, run) => real.after(delayMs, run) },
    DELAY_MS,
  );
  deadlines.add(() => void ran.push("before"));
  setMs -= 3_600_000;
  deadlines.add(() => void ran.push("after"));
  real.advance(2 * DELAY_MS);
  expect(ran).toEqual(["before", "after"]);
});

test("what is set and cancelled leaves nothing behind", () => {
  let timers = 0;
  const counting = new DeadlineQueue(
    {
      nowMs: () => clock.nowMs(),
      after(delayMs, run) {
        timers++;
        return clock.after(delayMs, run);
      },
    },
    DELAY_MS,
  );
  for (let i = 0; i < 1_000; i++) {
    counting.add(() => {}).cancel();
    clock.advance(1);
  }
  expect(timers).toBeLessThanOrEqual(2);
});

/** A clock that tells how many timers it has not been relieved of. */
class CountingClock extends VirtualClock {
  timers = 0;

  override after(delayMs: number, run: () => void): () => void {
    this.timers++;
    const cancel = super.after(delayMs, run);
    return () => {
      this.timers--;
      cancel();
    };
  }
}

test("work that is done in its time leaves no timer behind", async () => {
  const clock = new CountingClock();
  const { promise, resolve } = Promise.withResolvers<void>();
  const inTime = finishesWithin(promise, clock, 100);
  clock.advance(99);
  resolve();
  expect(await inTime).toBeTrue();
  expect(clock.timers).toBe(0);
});

test("work is not waited for longer than its time, and may fail behind it", async () => {
  const clock = new CountingClock();
  const { promise, reject } = Promise.withResolvers<void>();
  const inTime = finishesWithin(promise, clock, 100);
  clock.advance(100);
  expect(await inTime).toBeFalse();
  reject(new Error("late"));
  await expect(promise).rejects.toThrow("late");
});

test("work that fails in its time is told of", async () => {
  const clock = new CountingClock();
  await expect(finishesWithin(Promise.reject(new Error("early")), clock, 100)).rejects.toThrow(
    "early",
  );
  expect(clock.timers).toBe(0);
});

test("the same holds within the delay of a queue, which keeps nothing of it", async () => {
  const clock = new VirtualClock();
  const queue = new DeadlineQueue(clock, 100);
  const quick = Promise.withResolvers<void>();
  const slow = Promise.withResolvers<void>();
  const inTime = finishesBeforeDeadline(quick.promise, queue);
  const late = finishesBeforeDeadline(slow.promise, queue);
  const failing = finishesBeforeDeadline(Promise.reject(new Error("early")), queue);
  await expect(failing).rejects.toThrow("early");
  clock.advance(99);
  quick.resolve();
  expect(await inTime).toBeTrue();
  expect(queue.entries).toHaveLength(1);
  clock.advance(1);
  expect(await late).toBeFalse();
  expect(queue.entries).toEqual([]);
  slow.reject(new Error("late"));
  await expect(slow.promise).rejects.toThrow("late");
});
