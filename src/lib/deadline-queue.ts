import type { Clock } from "./clock.ts";

/** A deadline that was set; `cancel` may be called at any time, more than once. */
export interface Deadline {
  cancel(): void;
}

interface Entry {
  dueMs: number;
  readonly run: () => void;
}

/**
 * Deadlines that all lie equally far ahead, so that they fall due in the order in which they were set:
 * one timer serves them all, and setting and cancelling one costs next to nothing.
 */
export class DeadlineQueue {
  readonly #clock: Clock;
  readonly #delayMs: number;
  readonly #entries = new Set<Entry>();
  #isTimerSet = false;

  constructor(clock: Clock, delayMs: number) {
    this.#clock = clock;
    this.#delayMs = delayMs;
  }

  /** Calls `run` once when the delay has passed, unless it is cancelled before. */
  add(run: () => void): Deadline {
    const entry: Entry = { dueMs: this.#clock.nowMs() + this.#delayMs, run };
    this.#entries.add(entry);
    if (!this.#isTimerSet) this.#setTimer(this.#delayMs);
    return { cancel: () => this.#entries.delete(entry) };
  }

  /** Runs all that are set, before their time. */
  expireAll(): void {
    for (const entry of [...this.#entries]) {
      this.#entries.delete(entry);
      entry.run();
    }
  }

  #setTimer(delayMs: number): void {
    this.#isTimerSet = true;
    this.#clock.after(delayMs, () => {
      this.#isTimerSet = false;
      this.#runDue();
    });
  }

  #runDue(): void {
    const nowMs = this.#clock.nowMs();
    for (const entry of this.#entries) {
      // Where the clock was set back, nothing waits for longer than a whole delay from now.
      entry.dueMs = Math.min(entry.dueMs, nowMs + this.#delayMs);
      if (entry.dueMs > nowMs) {
        this.#setTimer(entry.dueMs - nowMs);
        return;
      }
      this.#entries.delete(entry);
      entry.run();
    }
  }
}
