/** The longer something has been awaited, the less often it is looked at: a look may cost a connection. */
const LEAST_POLL_MS = 5;
const MOST_POLL_MS = 50;
const POLL_SHARE = 0.05;
const TIMEOUT_MS = 20_000;

/**
 * Resolves with what `look` finds, once it finds something other than undefined or false. Rejects after
 * the timeout, naming what was awaited.
 */
export async function until<Found>(
  awaited: string,
  look: () => Promise<Found | undefined | false> | Found | undefined | false,
  timeoutMs = TIMEOUT_MS,
): Promise<Found> {
  const beganMs = performance.now();
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found as Found;
    const waitedMs = performance.now() - beganMs;
    if (waitedMs > timeoutMs) throw new Error(`not within ${timeoutMs} ms: ${awaited}`);
    await Bun.sleep(Math.min(MOST_POLL_MS, Math.max(LEAST_POLL_MS, waitedMs * POLL_SHARE)));
  }
}
