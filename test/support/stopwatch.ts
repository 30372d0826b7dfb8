import { readFileSync } from "node:fs";

/**
 * Measures milliseconds from now on, without those in which the main threads of this process and of the
 * given ones were ready to run and waited for a processor: what remains is the program's own doing, however
 * much else the machine has to do.
 */
export function startStopwatch(...pids: readonly number[]): () => number {
  const waitMs = () => [process.pid, ...pids].reduce((sum, pid) => sum + processorWaitMs(pid), 0);
  const beganMs = performance.now() - waitMs();
  return () => performance.now() - waitMs() - beganMs;
}

/** See proc(5), schedstat: its second number is nanoseconds. 0 where the kernel does not count them. */
function processorWaitMs(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, "latin1").split(" ")[1]) / 1e6;
  } catch {
    // It has ended meanwhile, or this is another system than Linux.
    return 0;
  }
}
