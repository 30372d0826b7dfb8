import { steadyClock } from "../../lib/clock.ts";
import type { CoordinationOptions } from "../create-coordination.ts";
import type { Coordination } from "../interface.ts";
import { WINDOW_MS } from "../sliding-window.ts";
import { RedisCache } from "./cache.ts";
import { openRedis } from "./connection.ts";
import { RateScripts } from "./rate-scripts.ts";
import { RedisRateWindows } from "./rate-windows.ts";
import { RedisWakes } from "./wakes.ts";

/** All keys are in one slot, so that a cluster takes the scripts too. */
const KEY_PREFIX = "{gateway}:";

/** The coordination of one of several instances. */
export function createShared(options: CoordinationOptions, redisUrl: string): Coordination {
  const { instanceId, windowMs = WINDOW_MS, keyPrefix = KEY_PREFIX } = options;
  const { redis, tried, reconnect, failure } = openRedis(redisUrl);
  const listener = openRedis(redisUrl);
  const rates = new RedisRateWindows({
    scripts: new RateScripts({ redis, clock: steadyClock, instanceId, keyPrefix, windowMs }),
    clock: steadyClock,
    windowMs,
    liveInstances: options.liveInstances,
    reconnect() {
      reconnect();
      listener.reconnect();
    },
    onLost: (reason) => options.onRedisLost(failure() ?? reason),
    onBack: options.onRedisBack,
  });
  const isUp = () => rates.isJoined;
  const wakes = new RedisWakes({
    redis,
    listening: listener.redis,
    keyPrefix,
    instanceId,
    isUp,
    onError: options.onError,
  });
  return {
    rates,
    wakes,
    cache: new RedisCache(redis, keyPrefix, isUp),
    redis: {
      get isUp() {
        return rates.isJoined;
      },
      get admittedApart() {
        return rates.admittedApart;
      },
    },
    restoreRates: undefined,
    async start() {
      await Promise.all([tried, listener.tried]);
      await Promise.all([rates.start(), wakes.subscribed()]);
    },
    async close() {
      await rates.close();
      listener.redis.disconnect();
      redis.disconnect();
    },
  };
}
