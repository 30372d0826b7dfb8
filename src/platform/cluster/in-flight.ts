import { systemClock } from "../../lib/clock.ts";
import { finishesWithin } from "../../lib/deadlines.ts";

/**
 * Counts the requests that are being answered, streams included, so that a stop can wait for them. Its
 * states: open; stopping (readiness says no and connections are not kept, but what comes is served);
 * cut short (what still runs is ended). They follow one another in this order only.
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

  /** True once nothing is in flight any more, false when the time is up before. */
  async drained(withinMs: number): Promise<boolean> {
    if (this.#count === 0) return true;
    const idle = new Promise<void>((resolve) => void this.#idle.push(resolve));
    return finishesWithin(idle, systemClock, withinMs);
  }
}
