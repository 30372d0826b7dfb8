import { afterAll, beforeAll, describe, expect } from "bun:test";
import { Redis } from "ioredis";
import { VirtualClock } from "../../src/lib/clock.ts";
import { RateScripts } from "../../src/platform/cluster/redis/rate-scripts.ts";
import { RedisRateWindows } from "../../src/platform/cluster/redis/rate-windows.ts";
import { findTestRedis } from "../support/redis.ts";
import { describeRateWindows } from "./rate-windows.ts";

const server = await findTestRedis();

describe.skipIf(server === undefined)("rate windows in Redis", () => {
  let redis: Redis;
  const opened: RedisRateWindows[] = [];
  beforeAll(() => {
    redis = new Redis(server!.url, { lazyConnect: true });
  });
  afterAll(async () => {
    await Promise.all(opened.map((windows) => windows.close()));
    const keys = await redis.keys(`${server!.keyPrefix}*`);
    if (keys.length > 0) await redis.del(...keys);
    redis.disconnect();
  });

  describeRateWindows(async () => {
    const clock = new VirtualClock();
    const keyPrefix = `${server!.keyPrefix}${opened.length}:`;
    const clockKey = `${keyPrefix}clock`;
    const setClock = () => redis.set(clockKey, clock.nowMs());
    await setClock();
    const scripts = new RateScripts({
      redis,
      clock,
      instanceId: "ins_1",
      keyPrefix,
      windowMs: 60_000,
      clockKey,
    });
    const windows = new RedisRateWindows({
      scripts,
      // Time passes between requests only, so nothing attends in between.
      clock: { nowMs: () => clock.nowMs(), after: () => () => {} },
      windowMs: 60_000,
      liveInstances: () => ["ins_1"],
      reconnect: () => {},
      onLost: (error) => {
        throw error;
      },
      onBack: () => {},
    });
    await windows.start();
    expect(windows.isJoined).toBe(true);
    opened.push(windows);
    return {
      windows,
      nowMs: () => clock.nowMs(),
      async advance(byMs) {
        clock.advance(byMs);
        await setClock();
      },
    };
  });
});
