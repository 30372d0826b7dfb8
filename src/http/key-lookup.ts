import { findKeysByHash } from "../../db/queries/key-find-by-hash.ts";
import type { Query } from "../../db/query.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";

/** Which key a secret belongs to is fixed for ever, so it may be remembered; what the key may do is not. */
const MAX_KNOWN_SECRETS = 100_000;
/**
 * How long a secret without a key is refused unread. A key may be made with a secret that was tried before,
 * on any instance, and has to be usable within a second.
 */
const UNKNOWN_MS = 500;
const MAX_UNKNOWN_SECRETS = 10_000;
/** Secrets that one read looks up. */
const MAX_BATCH = 500;
const MAX_WAITING = 10_000;

export interface KeyLookupDependencies {
  readonly clock: Clock;
  read<Result>(query: Query<Result>): Promise<Result>;
}

interface WaitingLookup {
  readonly promise: Promise<string | undefined>;
  resolve(keyId: string | undefined): void;
  reject(error: unknown): void;
}

/**
 * Finds the key of a secret by the secret's hash. Anyone can make up secrets that pass the checksum, so a
 * flood of them must not cost a database read each: one read at a time looks up everything that waits, and
 * a secret that no key has is remembered for a moment.
 */
export class KeyLookup {
  readonly #dependencies: KeyLookupDependencies;
  readonly #keyIds = new Map<string, string>();
  /** Until when each is refused, the oldest first. */
  readonly #unknown = new Map<string, number>();
  readonly #waiting = new Map<string, WaitingLookup>();
  #isReading = false;

  constructor(dependencies: KeyLookupDependencies) {
    this.#dependencies = dependencies;
  }

  /** The id of the key, where its secret was seen before. */
  known(hash: string): string | undefined {
    return this.#keyIds.get(hash);
  }

  /** The key is gone, or was not found by its id. */
  forget(hash: string): void {
    this.#keyIds.delete(hash);
  }

  /** Undefined where no key has the secret. Throws 503 where too many lookups wait, and as the read does. */
  async find(hash: string): Promise<string | undefined> {
    if (this.#isUnknown(hash)) return undefined;
    const waiting = this.#waiting.get(hash);
    if (waiting !== undefined) return waiting.promise;
    if (this.#waiting.size >= MAX_WAITING) {
      throw new GatewayError("overloaded", "Too many API keys are being looked up. Try again.", {
        retryAfterSeconds: 1,
      });
    }
    const lookup = Promise.withResolvers<string | undefined>();
    this.#waiting.set(hash, lookup);
    if (!this.#isReading) void this.#readWaiting();
    return lookup.promise;
  }

  async #readWaiting(): Promise<void> {
    this.#isReading = true;
    while (this.#waiting.size > 0) {
      const batch = [...this.#waiting.entries().take(MAX_BATCH)];
      // What asks from here on is read afresh: its key may have been committed since.
      for (const [hash] of batch) this.#waiting.delete(hash);
      try {
        const hashes = batch.map(([hash]) => hash);
        const found = await this.#dependencies.read(findKeysByHash(hashes));
        for (const [hash, lookup] of batch) lookup.resolve(this.#remember(hash, found.get(hash)));
      } catch (error) {
        for (const [, lookup] of batch) lookup.reject(error);
      }
    }
    this.#isReading = false;
  }

  #remember(hash: string, keyId: string | undefined): string | undefined {
    if (keyId === undefined) {
      this.#unknown.delete(hash);
      if (this.#unknown.size >= MAX_UNKNOWN_SECRETS) deleteOldest(this.#unknown);
      this.#unknown.set(hash, this.#dependencies.clock.nowMs() + UNKNOWN_MS);
      return undefined;
    }
    if (this.#keyIds.size >= MAX_KNOWN_SECRETS) deleteOldest(this.#keyIds);
    this.#keyIds.set(hash, keyId);
    return keyId;
  }

  #isUnknown(hash: string): boolean {
    const untilMs = this.#unknown.get(hash);
    if (untilMs === undefined) return false;
    const leftMs = untilMs - this.#dependencies.clock.nowMs();
    // More than was given: the clock was set back.
    if (leftMs > 0 && leftMs <= UNKNOWN_MS) return true;
    this.#unknown.delete(hash);
    return false;
  }
}

function deleteOldest(map: Map<string, unknown>): void {
  map.delete(map.keys().next().value!);
}
