import type { Redis } from "ioredis";
import { GatewayError } from "../../lib/errors.ts";
import type { SharedCache } from "../interface.ts";
import { MAX_VALUE_LENGTH } from "../memory-cache.ts";

/** The cache that instances share. Redis bounds its memory and drops what has expired. */
export class RedisCache implements SharedCache {
  readonly #redis: Redis;
  readonly #keyPrefix: string;
  readonly #isUp: () => boolean;

  /** @param isUp false where asking would only cost the time of a command that fails */
  constructor(redis: Redis, keyPrefix: string, isUp: () => boolean) {
    this.#redis = redis;
    this.#keyPrefix = `${keyPrefix}cache:`;
    this.#isUp = isUp;
  }

  async get(key: string): Promise<string | undefined> {
    if (!this.#isUp()) return undefined;
    try {
      return (await this.#redis.get(this.#keyPrefix + key)) ?? undefined;
    } catch {
      return undefined;
    }
  }

  async set(key: string, value: string, expiresInMs: number): Promise<void> {
    if (!this.#isUp()) return;
    const lifeMs = Math.floor(expiresInMs);
    const isKept = value.length <= MAX_VALUE_LENGTH && lifeMs > 0;
    const name = this.#keyPrefix + key;
    const done = isKept ? this.#redis.set(name, value, "PX", lifeMs) : this.#redis.del(name);
    // What cannot be kept is looked up elsewhere the next time.
    await done.catch(() => {});
  }

  async delete(key: string): Promise<void> {
    try {
      await this.#redis.del(this.#keyPrefix + key);
    } catch (error) {
      throw new GatewayError("overloaded", "The shared cache cannot be reached at the moment.", {
        retryAfterSeconds: 1,
        cause: error,
      });
    }
  }
}
