import { type Clock, steadyClock } from "../lib/clock.ts";
import type { Coordination } from "./interface.ts";
import { MemoryRateWindows } from "./memory.ts";
import { MemoryCache } from "./memory-cache.ts";
import { MemoryWakes } from "./memory-wakes.ts";
import { RedisCache } from "./redis/cache.ts";
import { openRedis } from "./redis/connection.ts";
import { RateScripts } from "./redis/rate-scripts.ts";
import { RedisRateWindows } from "./redis/rate-windows.ts";
import { RedisWakes } from "./redis/wakes.ts";
import { WINDOW_MS } from "./sliding-window.ts";

export interface CoordinationOptions {
  /** Unset: this process is the only instance. */
  readonly redisUrl: string | undefined;
  readonly instanceId: string;
  readonly clock: Clock;
  /** How many instances live, this one included; known without Redis. */
  liveInstances(): number;
  /** Once when Redis is lost, and once when it is back. */
  onRedisLost(reason: Error): void;
  onRedisBack(lostForMs: number, admittedApart: number): void;
  onError(error: unknown): void;
  /** For tests: shorter than a minute, in whole tenths of a second. */
  readonly windowMs?: number;
  readonly keyPrefix?: string;
}

/** All keys are in one slot, so that a cluster takes the scripts too. */
const KEY_PREFIX = "{gateway}:";

/** Chooses how instances speak with one another. */
export function createCoordination(options: CoordinationOptions): Coordination {
  const { redisUrl } = options;
  return redisUrl === undefined ? createAlone(options) : createShared(options, redisUrl);
}

function createAlone({ clock, onError }: CoordinationOptions): Coordination {
  return {
    rates: new MemoryRateWindows(clock),
    wakes: new MemoryWakes(onError),
    cache: new MemoryCache(clock),
    redis: undefined,
    start: async () => {},
    close: async () => {},
  };
}

function createShared(options: CoordinationOptions, redisUrl: string): Coordination {
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
