import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { VirtualClock } from "../../src/lib/clock.ts";
import { GatewayError } from "../../src/lib/errors.ts";
import { MemoryRateWindows } from "../../src/platform/cluster/memory.ts";
import { countWithin, describeRateWindows } from "./rate-windows.ts";

const WINDOW_MS = 60_000;
const LATE_MS = 100;

describeRateWindows(() => {
  const clock = new VirtualClock();
  return {
    windows: new MemoryRateWindows(clock),
    nowMs: () => clock.nowMs(),
    advance: (byMs) => clock.advance(byMs),
  };
});

describe("admissions of a predecessor", () => {
  test("count until each has left its window, also where its clock was ahead of this one", async () => {
    const clock = new VirtualClock();
    await clock.advance(1_000_000);
    const windows = new MemoryRateWindows(clock);
    const nowMs = clock.nowMs();
    windows.restore([
      { keyId: "key", lastMs: nowMs - 59_000, count: 2, tokens: 0 },
      { keyId: "other", lastMs: nowMs - 30_000, count: 1, tokens: 0 },
      { keyId: "key", lastMs: nowMs + 5_000, count: 3, tokens: 0 },
    ]);
    expect(windows.take("key", 6)).toMatchObject({ isAdmitted: true, remaining: 0 });
    expect(windows.take("key", 6).isAdmitted).toBe(false);
    expect(windows.take("other", 6)).toMatchObject({ remaining: 4 });
    await clock.advance(1_000 + LATE_MS);
    expect(windows.take("key", 6)).toMatchObject({ isAdmitted: true, remaining: 1 });
    await clock.advance(WINDOW_MS);
    expect(windows.take("key", 6)).toMatchObject({ isAdmitted: true, remaining: 4 });
  });

  test("of more keys than fit are left out", () => {
    const windows = new MemoryRateWindows(new VirtualClock(), 2);
    windows.restore(["a", "b", "c"].map((keyId) => ({ keyId, lastMs: 0, count: 1, tokens: 0 })));
    expect(windows.size).toBe(2);
  });
});

describe("a clock that is set back", () => {
  /** Real time goes on; what the clock says does not follow it. */
  function settableClock() {
    const real = new VirtualClock();
    let setMs = 0;
    return {
      realMs: () => real.nowMs(),
      advance: (byMs: number) => real.advance(byMs),
      setBack(byMs: number) {
        setMs -= byMs;
      },
      clock: { nowMs: () => real.nowMs() + setMs, after: () => () => {} },
    };
  }

  test("does not let more through, and keeps nobody out for longer", () => {
    const step = fc.record({
      gapMs: fc.oneof(fc.integer({ min: 0, max: 3_000 }), fc.integer({ min: 59_000, max: 61_000 })),
      backMs: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 500 }), fc.constant(3_600_000)),
    });
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 6 }),
        fc.array(step, { minLength: 1, maxLength: 80 }),
        (limit, steps) => {
          const { realMs, advance, setBack, clock } = settableClock();
          const windows = new MemoryRateWindows(clock);
          const admittedMs: number[] = [];
          let stoodStillMs = 0;
          for (const { gapMs, backMs } of steps) {
            advance(gapMs);
            setBack(backMs);
            // What passed since it was last looked at cannot be told from the step back.
            if (backMs > 0) stoodStillMs += Math.min(gapMs, backMs);
            const { isAdmitted } = windows.take("key", limit);
            if (isAdmitted) admittedMs.push(realMs());
            else {
              const lateMs = LATE_MS + stoodStillMs;
              expect(countWithin(admittedMs, realMs(), WINDOW_MS + lateMs)).toBeGreaterThanOrEqual(
                limit,
              );
            }
          }
          for (const endMs of admittedMs) {
            expect(countWithin(admittedMs, endMs, WINDOW_MS)).toBeLessThanOrEqual(limit);
          }
        },
      ),
      { numRuns: 200 },
    );
  });

  test("by an hour leaves Retry-After and the reset as they were", () => {
    const { advance, setBack, clock } = settableClock();
    const windows = new MemoryRateWindows(clock);
    windows.take("key", 1);
    advance(10_000);
    const before = windows.take("key", 1);
    setBack(3_600_000);
    const after = windows.take("key", 1);
    expect(after.retryAfterMs).toBe(before.retryAfterMs);
    expect(after.resetMs).toBe(before.resetMs - 3_600_000);
    advance(after.retryAfterMs);
    expect(windows.take("key", 1).isAdmitted).toBe(true);
  });
});

describe("memory", () => {
  test("holds no window out of which everything has left", () => {
    const clock = new VirtualClock();
    const windows = new MemoryRateWindows(clock);
    for (let second = 0; second < 300; second++) {
      for (let i = 0; i < 20; i++) windows.take(`key ${second} ${i}`, 100);
      clock.advance(1_000);
    }
    expect(windows.size).toBeLessThanOrEqual(20 * 63);
  });

  test("is less than half a KB for a key that was used once", () => {
    const windows = new MemoryRateWindows(new VirtualClock());
    const keys = Array.from({ length: 10_000 }, (_, index) => `key ${index}`);
    const liveBytes = () => {
      Bun.gc(true);
      return process.memoryUsage().heapUsed;
    };
    const beforeBytes = liveBytes();
    for (const key of keys) windows.take(key, 100);
    expect((liveBytes() - beforeBytes) / keys.length).toBeLessThan(512);
    expect(windows.size).toBe(keys.length);
  });

  test("keeps the window of a key that goes on being used", () => {
    const clock = new VirtualClock();
    const windows = new MemoryRateWindows(clock);
    let admitted = 0;
    for (let second = 0; second < 600; second++) {
      if (windows.take("steady", 10).isAdmitted) admitted++;
      windows.take(`passing ${second}`, 1);
      clock.advance(1_000);
    }
    // Each window lasts a tenth of a second longer than a minute, which shows once a second here.
    expect(admitted).toBeLessThanOrEqual(100);
    expect(admitted).toBeGreaterThanOrEqual(98);
  });

  test("is bounded: further keys are turned away with 503, and those that are in go on", () => {
    const clock = new VirtualClock();
    const windows = new MemoryRateWindows(clock, 1_000);
    for (let i = 0; i < 1_000; i++) windows.take(`key ${i}`, 5);
    const turnedAway = () => windows.take("one more", 5);
    expect(turnedAway).toThrow(GatewayError);
    expect(turnedAway).toThrow("Too many API keys");
    expect(windows.take("key 0", 5)).toMatchObject({ isAdmitted: true, remaining: 3 });
    expect(windows.size).toBe(1_000);
    clock.advance(WINDOW_MS + 2_000);
    expect(windows.take("one more", 5).isAdmitted).toBe(true);
  });
});
