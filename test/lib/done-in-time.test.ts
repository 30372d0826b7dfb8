import { expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { DeadlineQueue } from "../../src/lib/deadlines.ts";
import { doneBeforeDeadline, doneInTime } from "../../src/lib/done-in-time.ts";

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
  const inTime = doneInTime(promise, clock, 100);
  clock.advance(99);
  resolve();
  expect(await inTime).toBeTrue();
  expect(clock.timers).toBe(0);
});

test("work is not waited for longer than its time, and may fail behind it", async () => {
  const clock = new CountingClock();
  const { promise, reject } = Promise.withResolvers<void>();
  const inTime = doneInTime(promise, clock, 100);
  clock.advance(100);
  expect(await inTime).toBeFalse();
  reject(new Error("late"));
  await expect(promise).rejects.toThrow("late");
});

test("work that fails in its time is told of", async () => {
  const clock = new CountingClock();
  await expect(doneInTime(Promise.reject(new Error("early")), clock, 100)).rejects.toThrow("early");
  expect(clock.timers).toBe(0);
});

test("the same holds within the delay of a queue, which keeps nothing of it", async () => {
  const clock = new VirtualClock();
  const queue = new DeadlineQueue(clock, 100);
  const quick = Promise.withResolvers<void>();
  const slow = Promise.withResolvers<void>();
  const inTime = doneBeforeDeadline(quick.promise, queue);
  const late = doneBeforeDeadline(slow.promise, queue);
  const failing = doneBeforeDeadline(Promise.reject(new Error("early")), queue);
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
