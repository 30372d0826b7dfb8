import type { Clock } from "./clock.ts";
import type { DeadlineQueue } from "./deadlines.ts";

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
