import type { Clock } from "../lib/clock.ts";
import type { MetricRegistry } from "./metric-registry.ts";

const SAMPLE_EVERY_MS = 1000;
const SAMPLES_KEPT = 15;

/**
 * What Prometheus conventionally knows of a process. prom-client's own set is not used: half of it is
 * empty under Bun, and its watch of the event loop wakes an idle process a hundred times a second.
 */
export function registerProcessMetrics(registry: MetricRegistry): void {
  registry.registerValue(
    {
      name: "process_cpu_seconds_total",
      help: "User and system CPU time in seconds.",
      type: "counter",
    },
    () => {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1e6;
    },
  );
  registry.registerValue(
    { name: "process_resident_memory_bytes", help: "Resident memory in bytes.", type: "gauge" },
    () => process.memoryUsage.rss(),
  );
  const startSeconds = Math.round(Date.now() / 1000 - process.uptime());
  registry.registerValue(
    {
      name: "process_start_time_seconds",
      help: "Start of the process in Unix seconds.",
      type: "gauge",
    },
    () => startSeconds,
  );
}

/** How late a one-second timer fires: the time for which the event loop was busy with something else. */
export class EventLoopLag {
  readonly #clock: Clock;
  readonly #monotonicMs: () => number;
  readonly #lagsMs: number[] = [];
  #cancel: () => void = () => {};

  constructor(clock: Clock, monotonicMs: () => number) {
    this.#clock = clock;
    this.#monotonicMs = monotonicMs;
  }

  start(): void {
    const startedMs = this.#monotonicMs();
    this.#cancel = this.#clock.after(SAMPLE_EVERY_MS, () => {
      this.#lagsMs.push(Math.max(0, this.#monotonicMs() - startedMs - SAMPLE_EVERY_MS));
      if (this.#lagsMs.length > SAMPLES_KEPT) this.#lagsMs.shift();
      this.start();
    });
  }

  stop(): void {
    this.#cancel();
  }

  /** The longest of the last 15 samples. */
  maxMs(): number {
    return Math.max(0, ...this.#lagsMs);
  }
}
