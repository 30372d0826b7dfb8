import type { Clock } from "./clock.ts";

/** What a deadline is set for. */
export interface Expiring {
  /** The delay has passed. */
  expire(): void;
}

/** A deadline that was set; `cancel` may be called at any time, more than once. */
export interface Deadline {
  cancel(): void;
}

/**
 * Deadlines that all lie equally far ahead, so that they fall due in the order in which they were set:
 * one timer serves them all, and setting and cancelling one costs next to nothing.
 */
export class DeadlineQueue {
  readonly #clock: Clock;
  readonly #delayMs: number;
  /** When each falls due, in that order. */
  readonly #dueMs = new Map<Expiring, number>();
  #isTimerSet = false;

  constructor(clock: Clock, delayMs: number) {
    this.#clock = clock;
    this.#delayMs = delayMs;
  }

  /** What has not expired and was not cancelled, in the order of its time. */
  get entries(): Iterable<Expiring> {
    return this.#dueMs.keys();
  }

  /** Calls `run` once when the delay has passed, unless it is cancelled before. */
  add(run: () => void): Deadline {
    const entry = new Entry(this, run);
    this.set(entry);
    return entry;
  }

  /** Expires the entry once when the delay has passed, unless it is cancelled before. It has one at a time. */
  set(entry: Expiring): void {
    this.#dueMs.set(entry, this.#clock.nowMs() + this.#delayMs);
    if (!this.#isTimerSet) this.#setTimer(this.#delayMs);
  }

  /** May be called at any time, more than once. */
  cancel(entry: Expiring): void {
    this.#dueMs.delete(entry);
  }

  /** Expires all that are set, before their time. */
  expireAll(): void {
    for (const entry of [...this.#dueMs.keys()]) {
      this.#dueMs.delete(entry);
      entry.expire();
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
    for (const [entry, setMs] of this.#dueMs) {
      // Where the clock was set back, nothing waits for longer than a whole delay from now.
      const dueMs = Math.min(setMs, nowMs + this.#delayMs);
      if (dueMs > nowMs) {
        this.#dueMs.set(entry, dueMs);
        this.#setTimer(dueMs - nowMs);
        return;
      }
      this.#dueMs.delete(entry);
      entry.expire();
    }
  }
}

/** A deadline of a function. */
class Entry implements Expiring, Deadline {
  readonly #queue: DeadlineQueue;
  readonly #run: () => void;

  constructor(queue: DeadlineQueue, run: () => void) {
    this.#queue = queue;
    this.#run = run;
  }

  expire(): void {
    this.#run();
  }

  cancel(): void {
    this.#queue.cancel(this);
  }
}
