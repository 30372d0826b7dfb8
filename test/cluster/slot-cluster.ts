import { Redis } from "ioredis";
import { type Clock, steadyClock } from "../../src/lib/clock.ts";
import { RedisSlots } from "../../src/platform/cluster/redis/parallel-slots.ts";
import { type SlotExchange, SlotScript } from "../../src/platform/cluster/redis/slot-script.ts";

/** A script behind a network that can be cut, or lose answers. */
class CuttableScript extends SlotScript {
  isCut = false;
  /** Answers that do not arrive, of exchanges that Redis carried out and that join nothing. */
  lostAnswers = 0;

  override async exchange(exchange: SlotExchange): Promise<boolean[]> {
    if (this.isCut) throw new Error("cut");
    const answers = await super.exchange(exchange);
    if (!exchange.joins && this.lostAnswers > 0 && this.lostAnswers-- > 0) throw new Error("lost");
    return answers;
  }
}

interface SlotInstance {
  readonly id: string;
  readonly slots: RedisSlots;
  readonly script: CuttableScript;
  /** Lets its time come: it says that it is there. */
  renew(): void;
  /** It does nothing more by itself. */
  freeze(): void;
}

/** Instances whose places are counted in one Redis. */
export class SlotCluster {
  readonly live = new Set<string>();
  readonly #redis: Redis;
  readonly #keyPrefix: string;
  readonly #leaseMs: number;
  readonly #instances: SlotInstance[] = [];

  constructor(url: string, keyPrefix: string, leaseMs: number) {
    this.#redis = new Redis(url);
    this.#keyPrefix = `${keyPrefix}${crypto.randomUUID()}:`;
    this.#leaseMs = leaseMs;
  }

  /** Starts an instance that the others know to live. */
  async add(): Promise<SlotInstance> {
    const id = `ins_${this.#instances.length}`;
    this.live.add(id);
    const script = new CuttableScript(this.#redis, steadyClock, this.#keyPrefix, this.#leaseMs);
    let isFrozen = false;
    const due = new Set<() => void>();
    const clock: Clock = {
      nowMs: () => steadyClock.nowMs(),
      after(delayMs, run) {
        const once = () => {
          if (isFrozen) return;
          cancel();
          due.delete(once);
          run();
        };
        const cancel = steadyClock.after(delayMs, once);
        due.add(once);
        return () => {
          cancel();
          due.delete(once);
        };
      },
    };
    const slots = new RedisSlots({
      script,
      clock,
      instanceId: id,
      liveInstances: () => [...this.live],
    });
    await slots.begin();
    const instance = {
      id,
      slots,
      script,
      renew: () => {
        for (const run of [...due]) run();
      },
      freeze: () => {
        isFrozen = true;
      },
    };
    this.#instances.push(instance);
    return instance;
  }

  /** As a Redis that was restarted, empty. */
  async lose(): Promise<void> {
    const keys = await this.#redis.keys(`${this.#keyPrefix}*`);
    if (keys.length > 0) await this.#redis.del(...keys);
  }

  async close(): Promise<void> {
    await Promise.all(this.#instances.map(({ slots }) => slots.close()));
    await this.lose();
    this.#redis.disconnect();
  }
}
