const SHORTEST_PAUSE_MS = 5;
const LONGEST_PAUSE_MS = 50;

/**
 * Asks until the condition holds: another process's state can only be polled.
 *
 * @returns whether it came to hold within `timeoutMs`.
 */
export async function waitUntil(
  condition: () => boolean | Promise<boolean>,
  timeoutMs: number,
): Promise<boolean> {
  const deadlineMs = performance.now() + timeoutMs;
  for (let pauseMs = SHORTEST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 1.5, LONGEST_PAUSE_MS)) {
    if (await condition()) return true;
    if (performance.now() >= deadlineMs) return false;
    await Bun.sleep(pauseMs);
  }
}
