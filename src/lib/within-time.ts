import type { Clock } from "./clock.ts";

/** Resolves with the promise, or when the time is up. */
export async function withinTime(
  promise: Promise<void>,
  clock: Clock,
  timeMs: number,
): Promise<void> {
  let cancelTimer: (() => void) | undefined;
  const timeIsUp = new Promise<void>((resolve) => {
    cancelTimer = clock.after(timeMs, resolve);
  });
  await Promise.race([promise, timeIsUp]);
  cancelTimer?.();
}
