import { version } from "../../../package.json";
import type { Clock } from "../../lib/clock.ts";
import type { LogDestination } from "./log-writer.ts";
import { Histogram, type MetricRegistry } from "./metric-registry.ts";

const COMMIT_BOUNDS_SECONDS = [
  0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
];
const BATCH_BOUNDS_UNITS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/**
 * Registers the conventional metrics of a process. prom-client's own set is not used: half of it is
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

/** Registers the histograms of commits and returns them for `observeCommit`. */
export function registerCommitMetrics(registry: MetricRegistry): {
  readonly batch: Histogram;
  readonly duration: Histogram;
} {
  const batch = new Histogram(BATCH_BOUNDS_UNITS);
  const duration = new Histogram(COMMIT_BOUNDS_SECONDS);
  const batchName = "gateway_commit_batch_size";
  registry.register(
    { name: batchName, help: "Units of work that shared a commit.", type: "histogram" },
    () => batch.samples(batchName, {}),
  );
  const durationName = "gateway_commit_duration_seconds";
  registry.register(
    { name: durationName, help: "Time that a commit took.", type: "histogram" },
    () => duration.samples(durationName, {}),
  );
  return { batch, duration };
}

interface TelemetryReadings {
  readonly lag: LongestLag;
  readonly destination: LogDestination;
  clampedCharges(): number;
}

/** Registers the metrics of the telemetry itself. */
export function registerTelemetryMetrics(
  registry: MetricRegistry,
  readings: TelemetryReadings,
): void {
  registry.register(
    {
      name: "gateway_build_info",
      help: "Always 1; the label holds the version of the gateway.",
      type: "gauge",
    },
    () => [{ labels: { version }, value: 1 }],
  );
  registry.registerValue(
    {
      name: "gateway_charge_clamped_total",
      help: "Charges cut to their hold because the provider reported more.",
      type: "counter",
    },
    () => readings.clampedCharges(),
  );
  registry.registerValue(
    {
      name: "gateway_event_loop_lag_seconds",
      help: "Longest delay of a one-second timer in the last 15 seconds.",
      type: "gauge",
    },
    () => readings.lag.maxMs() / 1000,
  );
  registry.registerValue(
    {
      name: "gateway_log_lines_dropped_total",
      help: "Log lines that could not be written.",
      type: "counter",
    },
    () => readings.destination.droppedLines,
  );
}

const TICK_MS = 100;
/**
 * The number of recent delays, large enough that a single pause, such as a garbage collection, does
 * not count as load.
 */
const TICKS = 5;
const SAMPLE_EVERY_MS = 1000;
const MAX_SAMPLES = 15;

/** Ticks without a read after which the timer stops: an idle process is not woken for it. */
const MAX_UNREAD_TICKS = 100;

/**
 * The smallest of the recent delays of a 100 ms timer, for load shedding: the lag that the event
 * loop had all the time. The timer runs while the lag is read.
 */
export class EventLoopLag {
  readonly #nowMs: () => number;
  readonly #lagsMs: number[] = Array(TICKS).fill(0);
  #timer: ReturnType<typeof setInterval> | undefined;
  #dueMs = 0;
  #next = 0;
  #unreadTicks = 0;
  #isStopped = false;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
    this.#start();
  }

  get lagMs(): number {
    this.#unreadTicks = 0;
    if (this.#timer === undefined && !this.#isStopped) this.#start();
    return Math.min(...this.#lagsMs);
  }

  /** True while the timer runs. */
  get isMeasuring(): boolean {
    return this.#timer !== undefined;
  }

  tick(nowMs: number): void {
    this.#lagsMs[this.#next] = Math.max(0, nowMs - this.#dueMs);
    this.#next = (this.#next + 1) % TICKS;
    this.#dueMs = nowMs + TICK_MS;
    if (++this.#unreadTicks >= MAX_UNREAD_TICKS) this.#pause();
  }

  stop(): void {
    this.#isStopped = true;
    this.#pause();
  }

  #start(): void {
    this.#dueMs = this.#nowMs() + TICK_MS;
    this.#timer = setInterval(() => this.tick(this.#nowMs()), TICK_MS);
    this.#timer.unref();
  }

  /** Stops the timer. The lag of the past says nothing about the time of the next read. */
  #pause(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    if (!this.#isStopped) this.#lagsMs.fill(0);
  }
}

/** The longest of the recent delays of a one-second timer, for the metrics. */
export class LongestLag {
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
      if (this.#lagsMs.length > MAX_SAMPLES) this.#lagsMs.shift();
      this.start();
    });
  }

  stop(): void {
    this.#cancel();
  }

  maxMs(): number {
    return Math.max(0, ...this.#lagsMs);
  }
}
