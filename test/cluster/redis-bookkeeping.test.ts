import { describe, expect, test } from "bun:test";
import { Redis } from "ioredis";
import { RedisTime } from "../../src/cluster/redis/connection.ts";
import { LiveHistory, OwnAdmissions } from "../../src/cluster/redis/local-shares.ts";
import { RateScripts, Stalled } from "../../src/cluster/redis/rate-scripts.ts";
import { VirtualClock } from "../../src/lib/clock.ts";

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
    const own = new OwnAdmissions(clock, WINDOW_MS);
    for (let second = 0; second < 30; second++) {
      for (let key = 0; key < 20; key++) own.takeShare(`key ${key}`, 1_000);
      clock.advance(1_050);
    }
    expect(own.untoldKeys).toBe(20);
    const told = new Map<string, number>();
    for (let round = 0; own.untoldKeys > 0; round++) {
      expect(round).toBeLessThan(20);
      const untold = own.tell(8, 100);
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
    expect(own.tell(8, 100)).toEqual([]);
  });

  test("is told again where telling failed, beside what came meanwhile, and wholly where Redis lost it", () => {
    const clock = new VirtualClock();
    const own = new OwnAdmissions(clock, WINDOW_MS);
    const sum = () =>
      own.tell(100, 1_000).reduce((total, { counts }) => {
        for (const admitted of counts.values()) total += admitted;
        return total;
      }, 0);
    own.takeShare("key", 10);
    const told = own.tell(100, 1_000);
    own.takeShare("key", 10);
    own.untell(told);
    expect(sum()).toBe(2);
    own.noteTold(own.reserve("key"));
    expect(sum()).toBe(0);
    own.forgetTold();
    expect(sum()).toBe(3);
    clock.advance(WINDOW_MS + 200);
    own.forgetTold();
    expect(sum()).toBe(0);
  });

  test("stays bounded however long Redis is gone", () => {
    const clock = new VirtualClock();
    const own = new OwnAdmissions(clock, WINDOW_MS);
    for (let second = 0; second < 1_200; second++) {
      for (let i = 0; i < 20; i++) own.takeShare(`key ${second} ${i}`, 100);
      own.takeShare("steady", 1_000);
      clock.advance(1_000);
    }
    // 20 new keys a second are 1,200 a window.
    expect(own.untoldKeys).toBeLessThan(2 * 1_300 + 1_100);
    let pieces = 0;
    while (own.untoldKeys > 0) {
      for (const { counts } of own.tell(64, 1_000)) pieces += counts.size;
    }
    expect(pieces).toBeLessThan(1_300 + 61);
  });
});

test("what fails long after its time was up says that this process was busy, not that Redis is lost", async () => {
  const refusing = new Redis({ port: 1, lazyConnect: true, enableOfflineQueue: false });
  refusing.on("error", () => {});
  const failureAfter = async (tookMs: number) => {
    let nowMs = 0;
    const scripts = new RateScripts({
      redis: refusing,
      clock: { nowMs: () => (nowMs += tookMs), after: () => () => {} },
      instanceId: "ins_1",
      keyPrefix: "busy:",
      windowMs: WINDOW_MS,
    });
    return scripts.attend(undefined, undefined).catch((error: unknown) => error);
  };
  expect(await failureAfter(400)).toBeInstanceOf(Stalled);
  const failure = await failureAfter(255);
  expect(failure).toBeInstanceOf(Error);
  expect(failure).not.toBeInstanceOf(Stalled);
  refusing.disconnect();
});
