import type { Clock } from "./clock.ts";
import type { DeadlineQueue, Expiring } from "./deadline-queue.ts";

/**
 * True when the work is done, false when its time is up before: then it goes on, and nobody waits for it.
 * Rejects where the work does in that time.
 */
export function doneInTime(work: Promise<unknown>, clock: Clock, timeMs: number): Promise<boolean> {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  const cancelTimer = clock.after(timeMs, () => resolve(false));
  work.then(
    () => {
      cancelTimer();
      resolve(true);
    },
    (error: unknown) => {
      cancelTimer();
      reject(error);
    },
  );
  return promise;
}

/** The same within the delay of the queue, which costs less than a timer of its own. */
export function doneBeforeDeadline(
  work: Promise<unknown>,
  deadlines: DeadlineQueue,
): Promise<boolean> {
  return new TimedWork(work, deadlines).isDone;
}

class TimedWork implements Expiring {
  older: Expiring | undefined;
  newer: Expiring | undefined;
  dueMs = 0;
  readonly isDone: Promise<boolean>;
  readonly #resolve: (isDone: boolean) => void;

  constructor(work: Promise<unknown>, deadlines: DeadlineQueue) {
    const { promise, resolve, reject } = Promise.withResolvers<boolean>();
    this.isDone = promise;
    this.#resolve = resolve;
    deadlines.set(this);
    work.then(
      () => {
        deadlines.cancel(this);
        resolve(true);
      },
      (error: unknown) => {
        deadlines.cancel(this);
        reject(error);
      },
    );
  }

  expire(): void {
    this.#resolve(false);
  }
}
