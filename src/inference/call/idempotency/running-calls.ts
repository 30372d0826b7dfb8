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

interface WatchedKey {
  readonly key: UsedKey;
  readonly waiting: Set<() => void>;
}

/**
 * Polls whether calls still run on any instance, for all callers that wait here. One query at a time covers
 * all of them; it neither writes nor locks.
 */
export class RunningCalls {
  readonly #dependencies: RunningCallsDependencies;
  readonly #watched = new Map<string, WatchedKey>();
  #isPolling = false;

  constructor(dependencies: RunningCallsDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Resolves when no call runs under the key, the client disconnects, the gateway stops, or `forMs` have
   * passed.
   */
  async untilEnded(key: UsedKey, signal: AbortSignal, forMs: number): Promise<void> {
    const name = nameOf(key);
    const watched = this.#watched.get(name) ?? { key, waiting: new Set() };
    this.#watched.set(name, watched);
    const { promise, resolve } = Promise.withResolvers<void>();
    const wake = () => resolve();
    watched.waiting.add(wake);
    signal.addEventListener("abort", wake);
    if (signal.aborted) wake();
    const cancelTimer = this.#dependencies.clock.after(forMs, wake);
    this.#pollSoon();
    await promise;
    cancelTimer();
    signal.removeEventListener("abort", wake);
    watched.waiting.delete(wake);
    if (watched.waiting.size === 0) this.#watched.delete(name);
  }

  #pollSoon(): void {
    if (this.#isPolling || this.#watched.size === 0) return;
    this.#isPolling = true;
    this.#dependencies.clock.after(POLL_MS, async () => {
      const polled = [...this.#watched.values()];
      const isRunning = await this.#findRunning(polled.map(({ key }) => key));
      const isAborting = this.#dependencies.isAborting();
      polled.forEach(({ waiting }, n) => {
        if (isAborting || !isRunning(n)) for (const wake of waiting) wake();
      });
      this.#isPolling = false;
      this.#pollSoon();
    });
  }

  /**
   * Returns a function that returns true if the key with this index is in use. If the database does not
   * answer, the function returns false, and each caller then tries to claim its key.
   */
  async #findRunning(keys: readonly UsedKey[]): Promise<(n: number) => boolean> {
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
