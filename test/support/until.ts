const POLL_MS = 5;
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
  const deadlineMs = performance.now() + timeoutMs;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found as Found;
    if (performance.now() > deadlineMs) {
      throw new Error(`not within ${timeoutMs} ms: ${awaited}`);
    }
    await Bun.sleep(POLL_MS);
  }
}
