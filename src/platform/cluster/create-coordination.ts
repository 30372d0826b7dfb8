import type { Clock } from "../../lib/clock.ts";
import type { Coordination } from "./interface.ts";
import { MemoryRateWindows } from "./memory.ts";
import { MemorySlots } from "./parallel-slots.ts";

export interface CoordinationOptions {
  /** Unset: this process is the only instance. */
  readonly redisUrl: string | undefined;
  readonly instanceId: string;
  readonly clock: Clock;
  /** Ids of the instances that live, this one among them; known without Redis. */
  liveInstances(): readonly string[];
  /** Once when Redis is lost, and once when it is back. */
  onRedisLost(reason: Error): void;
  onRedisBack(lostForMs: number, admittedApart: number): void;
  onError(error: unknown): void;
  /** For tests: shorter than a minute, in whole tenths of a second. */
  readonly windowMs?: number;
  readonly keyPrefix?: string;
}

/** Chooses how instances speak with one another. */
export async function createCoordination(options: CoordinationOptions): Promise<Coordination> {
  const { redisUrl } = options;
  if (redisUrl === undefined) return createSingleNode(options);
  // Its client takes 20 MB, which a process that is alone does not need.
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
