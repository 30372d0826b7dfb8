/** Work on the event loop in small steps lets others go on after as long. */
const MAX_HOLD_MS = 10;

/**
 * Returns what a loop of small steps awaits before each of them, because data that has arrived already comes
 * without a turn of the event loop: it resolves at once, or after such a turn where 10 ms have passed.
 */
export function loopPauses(): () => Promise<void> {
  let lastMs = performance.now();
  return async () => {
    if (performance.now() - lastMs < MAX_HOLD_MS) return;
    await new Promise<void>((resolve) => void setImmediate(resolve));
    lastMs = performance.now();
  };
}
