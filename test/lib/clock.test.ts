import { describe, expect, test } from "bun:test";
import { systemClock, VirtualClock } from "../../src/lib/clock.ts";

describe("the virtual clock", () => {
  test("stands still until it is advanced", () => {
    const clock = new VirtualClock(5);
    expect(clock.nowMs()).toBe(5);
    clock.advance(0);
    expect(clock.nowMs()).toBe(5);
    clock.advance(10);
    expect(clock.nowMs()).toBe(15);
  });

  test("runs what is due in the order of times, at those times, and of equal times in the order of setting", () => {
    const clock = new VirtualClock(0);
    const ran: string[] = [];
    const at = (name: string, delayMs: number) =>
      clock.after(delayMs, () => void ran.push(`${name} ${clock.nowMs()}`));
    at("late", 30);
    at("first", 10);
    at("second", 10);
    at("negative", -5);
    clock.advance(29);
    expect(ran).toEqual(["negative 0", "first 10", "second 10"]);
    clock.advance(1);
    expect(ran.at(-1)).toBe("late 30");
  });

  test("runs also what is set on the way, and nothing twice", () => {
    const clock = new VirtualClock(0);
    const atMs: number[] = [];
    const again = () => {
      atMs.push(clock.nowMs());
      clock.after(10, again);
    };
    clock.after(10, again);
    clock.advance(35);
    expect(atMs).toEqual([10, 20, 30]);
  });

  test("does not run what was cancelled, also by what ran before it", () => {
    const clock = new VirtualClock(0);
    const ran: string[] = [];
    clock.after(5, () => cancel());
    const cancel = clock.after(10, () => void ran.push("cancelled"));
    clock.after(10, () => void ran.push("kept"));
    clock.advance(10);
    expect(ran).toEqual(["kept"]);
  });
});

test("the system's clock tells the time and calls back, unless it is cancelled", async () => {
  expect(Math.abs(systemClock.nowMs() - Date.now())).toBeLessThan(1_000);
  let isCalled = false;
  const cancel = systemClock.after(0, () => {
    isCalled = true;
  });
  cancel();
  await new Promise<void>((resolve) => void systemClock.after(5, resolve));
  expect(isCalled).toBe(false);
});
