import { describe, expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { answerInTime, RedisTime } from "../../src/platform/cluster/redis/connection.ts";
import { InstanceAdmissions, LiveHistory } from "../../src/platform/cluster/redis/local-shares.ts";

const WINDOW_MS = 60_000;

describe("the most instances that lived within a window", () => {
  test("counts one that died until a window has passed, and one that begins at once", () => {
    const history = new LiveHistory(WINDOW_MS);
    expect(history.most(3, 0)).toBe(3);
    expect(history.most(2, 1_000)).toBe(3);
    expect(history.most(4, 2_000)).toBe(4);
    expect(history.most(2, 62_000)).toBe(4);
    expect(history.most(2, 62_001)).toBe(2);
  });
});

describe("Redis's time", () => {
  test("agrees however slow answers are, and not where a clock was set", () => {
    const time = new RedisTime();
    const aheadMs = 5_000;
    // Answered at any moment between sending and receiving.
    for (const [sentMs, answeredMs, receivedMs] of [
      [0, 1, 2],
      [1_000, 1_001, 9_000],
      [9_000, 9_200, 9_210],
      [10_000, 17_000, 17_001],
      [20_000, 20_000, 20_000],
    ] as const) {
      expect(time.observe(answeredMs + aheadMs, sentMs, receivedMs)).toBe(true);
    }
    expect(time.latestMs(21_000)).toBe(21_000 + aheadMs);
    for (const setMs of [60_000, -2_000]) {
      expect(time.observe(21_000 + aheadMs + setMs, 21_000, 21_001)).toBe(false);
      expect(time.observe(21_002 + aheadMs + setMs, 21_001, 21_003)).toBe(true);
      time.observe(21_004 + aheadMs, 21_004, 21_004);
    }
  });
});

describe("what an instance admitted without Redis", () => {
  test("is told once, in pieces of a bounded size, with ages that are never too old", () => {
    const clock = new VirtualClock();
    const own = new InstanceAdmissions(clock, WINDOW_MS, () => {});
    for (let second = 0; second < 30; second++) {
      for (let key = 0; key < 20; key++) own.takeShare(`key ${key}`, 1_000);
      clock.advance(1_050);
    }
    expect(own.unreportedKeys).toBe(20);
    const told = new Map<string, number>();
    for (let round = 0; own.unreportedKeys > 0; round++) {
      expect(round).toBeLessThan(20);
      const untold = own.takeReport(8, 100);
      expect(untold.length).toBeLessThanOrEqual(8);
      let pieces = 0;
      for (const { key, counts } of untold) {
        pieces += counts.size;
        for (const [bucket, admitted] of counts) {
          told.set(key, (told.get(key) ?? 0) + admitted);
          // Admitted i × 1,050 ms before now, for some i from 1 to 30.
          const isTrue = (ageMs: number) => (ageMs + 199) % 1_050 <= 199;
          expect(isTrue(own.ageMs(bucket))).toBe(true);
        }
      }
      expect(pieces).toBeLessThanOrEqual(100);
    }
    expect([...told.values()]).toEqual(Array(20).fill(30));
    expect(own.takeReport(8, 100)).toEqual([]);
  });

  test("is told again where telling failed, beside what came meanwhile, and wholly where Redis lost it", () => {
    const clock = new VirtualClock();
    const own = new InstanceAdmissions(clock, WINDOW_MS, () => {});
    const sum = () =>
      own.takeReport(100, 1_000).reduce((total, { counts }) => {
        for (const admitted of counts.values()) total += admitted;
        return total;
      }, 0);
    own.takeShare("key", 10);
    const told = own.takeReport(100, 1_000);
    own.takeShare("key", 10);
    own.cancelReport(told);
    expect(sum()).toBe(2);
    own.recordReported(own.reserve("key"));
    expect(sum()).toBe(0);
    own.markAllUnreported();
    expect(sum()).toBe(3);
    clock.advance(WINDOW_MS + 200);
    own.markAllUnreported();
    expect(sum()).toBe(0);
  });

  test("stays bounded however long Redis is gone", () => {
    const clock = new VirtualClock();
    const own = new InstanceAdmissions(clock, WINDOW_MS, () => {});
    for (let second = 0; second < 1_200; second++) {
      for (let i = 0; i < 20; i++) own.takeShare(`key ${second} ${i}`, 100);
      own.takeShare("steady", 1_000);
      clock.advance(1_000);
    }
    // 20 new keys a second are 1,200 a window.
    expect(own.unreportedKeys).toBeLessThan(2 * 1_300 + 1_100);
    let pieces = 0;
    while (own.unreportedKeys > 0) {
      for (const { counts } of own.takeReport(64, 1_000)) pieces += counts.size;
    }
    expect(pieces).toBeLessThan(1_300 + 61);
  });
});

describe("an answer", () => {
  /** A clock whose waits end when the test says so. */
  function heldClock() {
    const waits: (() => void)[] = [];
    const clock = {
      nowMs: () => 0,
      after(_: number, run: () => void) {
        waits.push(run);
        return () => void waits.splice(waits.indexOf(run), 1);
      },
    };
    return { clock, waits };
  }

  test("is read by a process that was held up, however long, and then counts", async () => {
    const { clock, waits } = heldClock();
    const answer = Promise.withResolvers<string>();
    const read = answerInTime(clock, answer.promise);
    for (let slice = 1; slice < 5; slice++) waits.shift()!();
    answer.resolve("carried out");
    expect(await read).toBe("carried out");
    expect(waits).toEqual([]);
  });

  test("that comes after the time of waiting goes to who cares for late ones", async () => {
    const { clock, waits } = heldClock();
    const answer = Promise.withResolvers<string>();
    const late = Promise.withResolvers<string>();
    const read = answerInTime(clock, answer.promise, late.resolve);
    for (let slice = 1; slice <= 5; slice++) waits.shift()!();
    await expect(read).rejects.toThrow("it did not answer in time");
    answer.resolve("carried out");
    expect(await late.promise).toBe("carried out");
  });
});
