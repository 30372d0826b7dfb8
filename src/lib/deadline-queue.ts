import { type Aged, AgeOrder } from "./age-order.ts";
import type { Clock } from "./clock.ts";

/** What a deadline is set for. Its neighbours and its time are the queue's to set. */
export interface Expiring extends Aged<Expiring> {
  dueMs: number;
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
  readonly #order = new AgeOrder<Expiring>();
  #isTimerSet = false;

  constructor(clock: Clock, delayMs: number) {
    this.#clock = clock;
    this.#delayMs = delayMs;
  }

  /** What has not expired and was not cancelled, in the order of its time. */
  get entries(): readonly Expiring[] {
    return this.#order.list();
  }

  /** Calls `run` once when the delay has passed, unless it is cancelled before. */
  add(run: () => void): Deadline {
    const entry = new Entry(this, run);
    this.set(entry);
    return entry;
  }

  /** Expires the entry once when the delay has passed, unless it is cancelled before. It is in one queue. */
  set(entry: Expiring): void {
    this.#order.remove(entry);
    entry.dueMs = this.#clock.nowMs() + this.#delayMs;
    this.#order.add(entry);
    if (!this.#isTimerSet) this.#setTimer(this.#delayMs);
  }

  /** May be called at any time, more than once. */
  cancel(entry: Expiring): void {
    this.#order.remove(entry);
  }

  /** Expires all that are set, before their time. */
  expireAll(): void {
    for (const entry of this.#order.list()) {
      if (this.#order.remove(entry)) entry.expire();
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
    for (let entry = this.#order.oldest; entry !== undefined; entry = this.#order.oldest) {
      // Where the clock was set back, nothing waits for longer than a whole delay from now.
      entry.dueMs = Math.min(entry.dueMs, nowMs + this.#delayMs);
      if (entry.dueMs > nowMs) {
        this.#setTimer(entry.dueMs - nowMs);
        return;
      }
      this.#order.remove(entry);
      entry.expire();
    }
  }
}

/** A deadline of a function. */
class Entry implements Expiring, Deadline {
  older: Expiring | undefined;
  newer: Expiring | undefined;
  dueMs = 0;
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
