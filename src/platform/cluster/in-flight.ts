import { systemClock } from "../../lib/clock.ts";
import { finishesWithin } from "../../lib/deadlines.ts";

/**
 * Counts the requests in progress, including streams, so that a shutdown can wait for them. Its
 * states follow one another in this order only:
 *
 * - open,
 * - stopping: readiness fails and connections are closed, but requests are still served,
 * - aborting: running requests are ended.
 */
export class InFlight {
  #count = 0;
  #isStopping = false;
  #isAborting = false;
  #idle: (() => void)[] = [];

  get count(): number {
    return this.#count;
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  get isAborting(): boolean {
    return this.#isAborting;
  }

  begin(): void {
    this.#count++;
  }

  end(): void {
    this.#count--;
    if (this.#count === 0) for (const resolve of this.#idle.splice(0)) resolve();
  }

  announceStop(): void {
    this.#isStopping = true;
  }

  abortAll(): void {
    this.#isStopping = true;
    this.#isAborting = true;
  }

  /** Resolves with true when no request is in progress, or with false after `withinMs`. */
  async drained(withinMs: number): Promise<boolean> {
    if (this.#count === 0) return true;
    const idle = new Promise<void>((resolve) => void this.#idle.push(resolve));
    return finishesWithin(idle, systemClock, withinMs);
  }
}
