import type { Clock } from "../lib/clock.ts";
import type { PieceReader } from "./interface.ts";

/** Time to read the rest of a stream after its last event, in milliseconds. Then the connection is closed. */
const DRAIN_MS = 1_000;

/**
 * Reads a stream whose answer is complete to its end in the background, so that the connection can be reused. Cancels
 * the stream if it has not ended after one second.
 */
export function drainInBackground(reader: PieceReader<unknown>, clock: Clock): void {
  if (reader.isOver === true) return;
  const stopTimer = clock.after(DRAIN_MS, () => {
    reader.cancel().catch(() => undefined);
  });
  void (async () => {
    try {
      while (!(await reader.read()).done);
    } catch {
      // The answer was complete before the connection broke.
    } finally {
      stopTimer();
    }
  })();
}
