/*
 * Kills the process of `extraction-main.ts` if a file takes too much time or memory. This is a thread, because a
 * busy parser runs no timers. It has a separate script, so that it starts immediately.
 */
import { parentPort, workerData } from "node:worker_threads";
import type { ExtractionBounds } from "./extraction.ts";

const WATCH_MS = 20;

const { maxMemoryBytes, maxMs } = workerData as ExtractionBounds;
let untilMs = Number.POSITIVE_INFINITY;

parentPort!.on("message", (isReading: boolean) => {
  untilMs = isReading ? performance.now() + maxMs : Number.POSITIVE_INFINITY;
});
setInterval(() => {
  if (process.memoryUsage.rss() > maxMemoryBytes || performance.now() > untilMs) {
    process.kill(process.pid, "SIGKILL");
  }
}, WATCH_MS);
parentPort!.postMessage("ready");
