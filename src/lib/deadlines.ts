import { type Aged, AgeOrder } from "./age-order.ts";
import type { Clock } from "./clock.ts";

/** An entry of a DeadlineQueue, which sets its links and its time. */
export interface Expiring extends Aged<Expiring> {
  dueMs: number;
  /** The delay has passed. */
  expire(): void;
}

/** A pending call; `cancel` may be repeated. */
interface Deadline {
  cancel(): void;
}

/**
 * Deadlines with the same delay, which therefore fall due in the order in which they are set: one timer
 * serves all of them, and setting or cancelling one changes only links.
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

  /** The pending entries in the order of their deadlines. */
  get entries(): readonly Expiring[] {
    return this.#order.list();
  }

  /** Calls `run` once after the delay, unless it is cancelled. */
  add(run: () => void): Deadline {
    const entry = new Entry(this, run);
    this.set(entry);
    return entry;
  }

  /** Expires the entry once after the delay, unless it is cancelled. An entry is in one queue at a time. */
  set(entry: Expiring): void {
    this.#order.remove(entry);
    entry.dueMs = this.#clock.nowMs() + this.#delayMs;
    this.#order.add(entry);
    if (!this.#isTimerSet) this.#setTimer(this.#delayMs);
  }

  /** May be repeated. */
  cancel(entry: Expiring): void {
    this.#order.remove(entry);
  }

  /** Expires all pending entries at once. */
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
      // If the clock was set back, an entry still waits no longer than one delay from now.
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

/**
 * True when the work is done, false when its time is up before: then it goes on without a waiting caller.
 * Rejects where the work does in that time.
 */
export function doneInTime(work: Promise<unknown>, clock: Clock, timeMs: number): Promise<boolean> {
  return doneBefore(work, (timeIsUp) => clock.after(timeMs, timeIsUp));
}

/** The same within the delay of the queue, which costs less than a timer of its own. */
export function doneBeforeDeadline(
  work: Promise<unknown>,
  deadlines: DeadlineQueue,
): Promise<boolean> {
  return doneBefore(work, (timeIsUp) => {
    const deadline = deadlines.add(timeIsUp);
    return () => deadline.cancel();
  });
}

/** `after` calls what it is given when the time is up, unless what it returns is called before. */
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
