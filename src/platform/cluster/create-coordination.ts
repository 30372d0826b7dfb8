import type { Clock } from "../../lib/clock.ts";
import type { Coordination } from "./interface.ts";
import { MemoryRateWindows } from "./memory.ts";
import { MemorySlots } from "./parallel-slots.ts";

export interface CoordinationOptions {
  /** Undefined if this process is the only instance. */
  readonly redisUrl: string | undefined;
  readonly instanceId: string;
  readonly clock: Clock;
  /** Returns the ids of the live instances, including this one. Does not need Redis. */
  liveInstances(): readonly string[];
  /** Called once when Redis is lost. */
  onRedisLost(reason: Error): void;
  /**
   * Called once when Redis is available again, with the number of admissions decided without it.
   */
  onRedisBack(lostForMs: number, admittedWithoutRedis: number): void;
  onError(error: unknown): void;
  /** Length of a rate window in tests: milliseconds, less than a minute and a multiple of 100. */
  readonly windowMs?: number;
  readonly keyPrefix?: string;
}

/**
 * Creates the coordination between instances: in memory for a single instance, or else with Redis.
 */
export async function createCoordination(options: CoordinationOptions): Promise<Coordination> {
  const { redisUrl } = options;
  if (redisUrl === undefined) return createSingleNode(options);
  // The Redis client uses 20 MB, which a single instance does not need.
  const { createShared } = await import("./redis/coordination.ts");
  return createShared(options, redisUrl);
}

function createSingleNode({ clock }: CoordinationOptions): Coordination {
  const rates = new MemoryRateWindows(clock);
  return {
    rates,
    slots: new MemorySlots(),
    wakes: undefined,
    redis: undefined,
    restoreRates: (admissions) => rates.restore(admissions),
    start: async () => {},
    close: async () => {},
  };
}
