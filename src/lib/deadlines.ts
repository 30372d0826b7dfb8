import type { Clock } from "./clock.ts";
import { IntrusiveList, type ListNode } from "./intrusive-list.ts";

/** An entry of a DeadlineQueue. The queue sets its links and its time. */
export interface Expiring extends ListNode<Expiring> {
  dueMs: number;
  /** The queue calls this when the delay has passed. */
  expire(): void;
}

/** A pending call. `cancel` can be called repeatedly. */
interface Deadline {
  cancel(): void;
}

/**
 * Deadlines with the same delay, which therefore fall due in the order in which they are set. One timer serves
 * all of them, and setting or cancelling a deadline changes only links.
 */
export class DeadlineQueue {
  readonly #clock: Clock;
  readonly #delayMs: number;
  readonly #order = new IntrusiveList<Expiring>();
  #isTimerSet = false;

  constructor(clock: Clock, delayMs: number) {
    this.#clock = clock;
    this.#delayMs = delayMs;
  }

  /** Returns the pending entries in the order of their deadlines. */
  get entries(): readonly Expiring[] {
    return this.#order.list();
  }

  /** Calls `run` once after the delay, unless it is cancelled. */
  add(run: () => void): Deadline {
    const entry = new Entry(this, run);
    this.set(entry);
    return entry;
  }

  /** Expires the entry once after the delay, unless it is cancelled. An entry is in only one queue at a time. */
  set(entry: Expiring): void {
    this.#order.remove(entry);
    entry.dueMs = this.#clock.nowMs() + this.#delayMs;
    this.#order.add(entry);
    if (!this.#isTimerSet) this.#setTimer(this.#delayMs);
  }

  /** Cancels the entry. Does nothing if the entry is no longer pending. */
  cancel(entry: Expiring): void {
    this.#order.remove(entry);
  }

  /** Expires all pending entries immediately. */
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
      // If the clock was set back, an entry still waits at most one delay from now.
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

/** A deadline that calls a function. */
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

/**
 * Returns true if the work finishes within the time. Returns false if it does not; the work then continues
 * without a caller. Rejects if the work rejects within the time.
 */
export function finishesWithin(
  work: Promise<unknown>,
  clock: Clock,
  timeMs: number,
): Promise<boolean> {
  return doneBefore(work, (timeIsUp) => clock.after(timeMs, timeIsUp));
}

/** Works like `finishesWithin`, with the delay of a queue, which is cheaper than a separate timer. */
export function finishesBeforeDeadline(
  work: Promise<unknown>,
  deadlines: DeadlineQueue,
): Promise<boolean> {
  return doneBefore(work, (timeIsUp) => {
    const deadline = deadlines.add(timeIsUp);
    return () => deadline.cancel();
  });
}

/** Waits for the work or the deadline. `after` sets the deadline and returns a function that cancels it. */
function doneBefore(
  work: Promise<unknown>,
  after: (timeIsUp: () => void) => () => void,
): Promise<boolean> {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  const cancel = after(() => resolve(false));
  work.then(
    () => {
      cancel();
      resolve(true);
    },
    (error: unknown) => {
      cancel();
      reject(error);
    },
  );
  return promise;
}
