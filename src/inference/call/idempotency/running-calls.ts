import type { Database } from "../../../../db/client.ts";
import {
  type IdempotencyClaim,
  runningIdempotencyKeys,
} from "../../../../db/queries/idempotency.ts";
import type { Clock } from "../../../lib/clock.ts";

const POLL_MS = 50;

type UsedKey = Pick<IdempotencyClaim, "keyId" | "idempotencyKey">;

export interface RunningCallsDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  /** Returns true if the gateway is stopping and the time of running calls is up. */
  isAborting(): boolean;
}

interface Watched {
  readonly key: UsedKey;
  readonly waiting: Set<() => void>;
}

/**
 * Polls whether calls still run on any instance, for all callers that wait here. One query at a time covers
 * all of them; it neither writes nor locks.
 */
export class RunningCalls {
  readonly #dependencies: RunningCallsDependencies;
  readonly #watched = new Map<string, Watched>();
  #isLooking = false;

  constructor(dependencies: RunningCallsDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Resolves when no call runs under the key, the client disconnects, the gateway stops, or `forMs` have
   * passed.
   */
  async ended(key: UsedKey, signal: AbortSignal, forMs: number): Promise<void> {
    const name = nameOf(key);
    const watched = this.#watched.get(name) ?? { key, waiting: new Set() };
    this.#watched.set(name, watched);
    const { promise, resolve } = Promise.withResolvers<void>();
    const wake = () => resolve();
    watched.waiting.add(wake);
    signal.addEventListener("abort", wake);
    if (signal.aborted) wake();
    const cancelTimer = this.#dependencies.clock.after(forMs, wake);
    this.#lookSoon();
    await promise;
    cancelTimer();
    signal.removeEventListener("abort", wake);
    watched.waiting.delete(wake);
    if (watched.waiting.size === 0) this.#watched.delete(name);
  }

  #lookSoon(): void {
    if (this.#isLooking || this.#watched.size === 0) return;
    this.#isLooking = true;
    this.#dependencies.clock.after(POLL_MS, async () => {
      const polled = [...this.#watched.values()];
      const isRunning = await this.#look(polled.map(({ key }) => key));
      const isAborting = this.#dependencies.isAborting();
      polled.forEach(({ waiting }, n) => {
        if (isAborting || !isRunning(n)) for (const wake of waiting) wake();
      });
      this.#isLooking = false;
      this.#lookSoon();
    });
  }

  /**
   * Returns a function that tells whether the key with this index is in use. If the database does not answer,
   * the function returns false, and each caller finds out by claiming its key.
   */
  async #look(keys: readonly UsedKey[]): Promise<(n: number) => boolean> {
    try {
      const running = await runningIdempotencyKeys(this.#dependencies.sql, keys);
      return (n) => running.has(n);
    } catch {
      return () => false;
    }
  }
}

function nameOf({ keyId, idempotencyKey }: UsedKey): string {
  return `${keyId} ${idempotencyKey}`;
}
