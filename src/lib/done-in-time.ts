import type { Clock } from "./clock.ts";

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
