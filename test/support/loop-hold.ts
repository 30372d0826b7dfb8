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
