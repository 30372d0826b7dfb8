import { readFileSync } from "node:fs";

const TICK_MS = 1;

/**
 * The longest time that this thread has computed without a tick of its event loop, in milliseconds of its
 * processor time, which other processes on the machine do not lengthen.
 */
export function measureLoopHold(): { stop(): number } {
  let longestMs = 0;
  let lastMs = processorTimeMs();
  const timer = setInterval(() => {
    const nowMs = processorTimeMs();
    longestMs = Math.max(longestMs, nowMs - lastMs);
    lastMs = nowMs;
  }, TICK_MS);
  return {
    stop() {
      clearInterval(timer);
      return Math.max(longestMs, processorTimeMs() - lastMs);
    },
  };
}

/** See proc(5), schedstat: its first number is nanoseconds on a processor. */
function processorTimeMs(): number {
  return Number(readFileSync("/proc/thread-self/schedstat", "latin1").split(" ")[0]) / 1e6;
}

const MEASUREMENTS = 3;

/**
 * The shortest of up to three measurements, taken until one is below the bound. What the measured work does on
 * this thread it does each time; what a garbage collection adds, which left-overs of earlier tests may need,
 * it does not.
 */
export async function shortestHoldMs(
  boundMs: number,
  work: () => Promise<number>,
): Promise<number> {
  let shortestMs = Number.POSITIVE_INFINITY;
  for (let count = 0; count < MEASUREMENTS && shortestMs >= boundMs; count++) {
    shortestMs = Math.min(shortestMs, await work());
  }
  return shortestMs;
}
