import type { Redis } from "ioredis";
import { steadyClock } from "../../../lib/clock.ts";
import type { CoordinationOptions } from "../create-coordination.ts";
import type { Coordination, Wakes } from "../interface.ts";
import { WINDOW_MS } from "../sliding-window.ts";
import { openRedis } from "./connection.ts";
import { RedisSlots } from "./parallel-slots.ts";
import { RateScripts } from "./rate-scripts.ts";
import { RedisRateWindows } from "./rate-windows.ts";
import { SlotScript } from "./slot-script.ts";

/**
 * The prefix of all keys. Its hash tag puts them in one slot, so that a Redis cluster accepts the
 * scripts too.
 */
const KEY_PREFIX = "{gateway}:";

/** Creates the coordination of one of several instances. */
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
  const slots = new RedisSlots({
    script: new SlotScript(redis, steadyClock, keyPrefix),
    clock: steadyClock,
    instanceId,
    liveInstances: options.liveInstances,
  });
  return {
    rates,
    slots,
    wakes,
    redis: {
      get isUp() {
        return rates.isJoined;
      },
      get admittedWithoutRedis() {
        return rates.admittedWithoutRedis;
      },
    },
    restoreRates: undefined,
    async start() {
      await Promise.all([tried, listener.tried]);
      await Promise.all([rates.start(), wakes.subscribed()]);
    },
    async close() {
      await Promise.all([rates.close(), slots.close()]);
      listener.redis.disconnect();
      redis.disconnect();
    },
  };
}

export interface RedisWakesOptions {
  readonly redis: Redis;
  /** A separate connection, because a connection that listens can do nothing else. */
  readonly listening: Redis;
  readonly keyPrefix: string;
  readonly instanceId: string;
  isUp(): boolean;
  onError(error: unknown): void;
}

/** Ids in one message. More ids are sent in several messages. */
const MAX_IDS_A_MESSAGE = 1_000;

/**
 * Wake-ups over all instances. This instance receives its own wake-ups immediately, with or without
 * Redis.
 */
export class RedisWakes implements Wakes {
  readonly #options: RedisWakesOptions;
  readonly #channel: string;
  readonly #board: WakeBoard;
  #subscribing: Promise<unknown> = Promise.resolve();

  constructor(options: RedisWakesOptions) {
    this.#options = options;
    this.#channel = `${options.keyPrefix}wakes`;
    this.#board = new WakeBoard((wakes) => this.#publish(wakes), options.onError);
    const { listening } = options;
    listening.on("message", (_, message) => this.#receive(message));
    // Once for each connection, because a new connection has no subscriptions.
    listening.on("ready", () => {
      this.#subscribing = listening.subscribe(this.#channel).catch(() => {});
    });
  }

  /** Resolves after the last connection has tried to subscribe. */
  async subscribed(): Promise<void> {
    await this.#subscribing;
  }

  wake(kind: string, id: string): void {
    this.#board.add(kind, id);
  }

  onWake(kind: string, listener: (id: string) => void): () => void {
    return this.#board.listen(kind, listener);
  }

  #publish(wakes: readonly (readonly [kind: string, ids: readonly string[]])[]): void {
    const { redis, instanceId, isUp } = this.#options;
    if (!isUp()) return;
    for (const [kind, ids] of wakes) {
      for (let from = 0; from < ids.length; from += MAX_IDS_A_MESSAGE) {
        const message = [instanceId, kind, ...ids.slice(from, from + MAX_IDS_A_MESSAGE)];
        // Lost wake-ups cost latency only, because owners also look for work by themselves.
        redis.publish(this.#channel, JSON.stringify(message)).catch(() => {});
      }
    }
  }

  #receive(message: string): void {
    const words = readWords(message);
    if (words === undefined) return;
    const [instanceId, kind, ...ids] = words;
    if (instanceId === this.#options.instanceId) return;
    for (const id of ids) this.#board.notify(kind!, id);
  }
}

/** Returns the words of a message, or undefined if no gateway has sent it. */
function readWords(message: string): string[] | undefined {
  try {
    const words: unknown = JSON.parse(message);
    if (
      Array.isArray(words) &&
      words.length > 2 &&
      words.every((word) => typeof word === "string")
    ) {
      return words;
    }
  } catch {
    // Not sent by a gateway.
  }
  return undefined;
}

/** Wake-ups of one turn of the event loop that wait to be published. Further ones are lost. */
const MAX_PENDING = 10_000;

/**
 * The listeners for wake-ups in this process, and the wake-ups that wait to be published together.
 */
export class WakeBoard {
  readonly #listeners = new Map<string, Set<(id: string) => void>>();
  readonly #pending = new Map<string, Set<string>>();
  readonly #publishAll: (
    wakes: readonly (readonly [kind: string, ids: readonly string[]])[],
  ) => void;
  readonly #onError: (error: unknown) => void;
  #pendingCount = 0;

  constructor(
    publishAll: (wakes: readonly (readonly [kind: string, ids: readonly string[]])[]) => void,
    onError: (error: unknown) => void,
  ) {
    this.#publishAll = publishAll;
    this.#onError = onError;
  }

  /** Adds a wake-up. Each actor is woken once, whatever the number of its wake-ups in this turn. */
  add(kind: string, id: string): void {
    let ids = this.#pending.get(kind);
    if (ids?.has(id) || this.#pendingCount >= MAX_PENDING) return;
    if (this.#pendingCount++ === 0) queueMicrotask(() => this.#flush());
    if (ids === undefined) {
      ids = new Set();
      this.#pending.set(kind, ids);
    }
    ids.add(id);
  }

  listen(kind: string, listener: (id: string) => void): () => void {
    let listeners = this.#listeners.get(kind);
    if (listeners === undefined) {
      listeners = new Set();
      this.#listeners.set(kind, listeners);
    }
    listeners.add(listener);
    return () => listeners.delete(listener);
  }

  /** Calls the listeners. A listener that throws does not keep the others from being called. */
  notify(kind: string, id: string): void {
    for (const listener of [...(this.#listeners.get(kind) ?? [])]) {
      try {
        listener(id);
      } catch (error) {
        this.#onError(error);
      }
    }
  }

  #flush(): void {
    const wakes = [...this.#pending].map(([kind, ids]) => [kind, [...ids]] as const);
    this.#pending.clear();
    this.#pendingCount = 0;
    for (const [kind, ids] of wakes) for (const id of ids) this.notify(kind, id);
    this.#publishAll(wakes);
  }
}
