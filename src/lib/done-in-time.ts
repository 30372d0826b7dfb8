import type { Clock } from "./clock.ts";

/**
 * True when the work is done, false when its time is up before: then it goes on, and nobody waits for it.
 * Rejects where the work does in that time.
 */
export async function doneInTime(
  work: Promise<unknown>,
  clock: Clock,
  timeMs: number,
): Promise<boolean> {
  let cancelTimer = (): void => {};
  const timeIsUp = new Promise<false>((resolve) => {
    cancelTimer = clock.after(timeMs, () => resolve(false));
  });
  try {
    return await Promise.race([work.then(() => true), timeIsUp]);
  } finally {
    cancelTimer();
  }
}
