import pino, { type LevelWithSilent, type Logger } from "pino";
import { type Clock, systemClock } from "../lib/clock.ts";
import { errorFields } from "./error-fields.ts";
import { Histogram } from "./histogram.ts";
import type { Telemetry } from "./interface.ts";
import { type LogDestination, LogWriter } from "./log-writer.ts";
import { type GatheredMetrics, mergeMetrics } from "./merged-metrics.ts";
import { MetricRegistry, metricsText } from "./metric-registry.ts";
import { EventLoopLag, registerProcessMetrics } from "./process-metrics.ts";
import { redactLine } from "./redact.ts";
import { requestLine } from "./request-line.ts";
import { RequestMetrics } from "./request-metrics.ts";

export interface TelemetryOptions {
  readonly level: LevelWithSilent;
  /** Standard output unless given. */
  readonly destination?: LogDestination;
  readonly clock?: Clock;
}

const STANDARD_OUTPUT = 1;
const COMMIT_BOUNDS_SECONDS = [
  0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
];
const BATCH_BOUNDS_UNITS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/** Logs as lines of JSON, metrics as Prometheus text. `close` it, or its timer keeps the process alive. */
export function createTelemetry(options: TelemetryOptions): Telemetry {
  const clock = options.clock ?? systemClock;
  const destination = options.destination ?? new LogWriter(STANDARD_OUTPUT, clock);
  const registry = new MetricRegistry();
  const requests = new RequestMetrics(registry);
  const commits = registerCommitMetrics(registry);
  const lag = new EventLoopLag(clock, () => performance.now());
  const time = isoTimes(clock);
  const log = createLog(options.level, destination, time);
  let clampedCharges = 0;
  let gather: (() => Promise<GatheredMetrics>) | undefined;

  registerProcessMetrics(registry);
  registerOwnMetrics(registry, { lag, destination, clampedCharges: () => clampedCharges });
  lag.start();
  const flush = () => destination.flushSync();
  process.on("exit", flush);

  return {
    log,
    record(request) {
      requests.count(request);
      if (!log.isLevelEnabled(request.status >= 500 ? "error" : "info")) return;
      destination.write(requestLine(request, time()));
    },
    countClampedCharge() {
      clampedCharges++;
    },
    observeCommit(units, durationMs) {
      commits.batch.observe(units);
      commits.duration.observe(durationMs / 1000);
    },
    gauge: (name, help, read) => registry.registerValue({ name, help, type: "gauge" }, read),
    labelledGauge: (name, help, label, read) =>
      registry.register({ name, help, type: "gauge" }, () =>
        Array.from(read(), ([labelValue, value]) => ({ labels: { [label]: labelValue }, value })),
      ),
    counter: (name, help, read) => registry.registerValue({ name, help, type: "counter" }, read),
    metrics: () => (gather === undefined ? registry.text() : gathered(registry, gather)),
    report: () => registry.report(),
    gatherMetricsWith(of) {
      gather = of;
    },
    metricsContentType: registry.contentType,
    async close() {
      lag.stop();
      process.off("exit", flush);
      await destination.close();
    },
  };
}

async function gathered(
  registry: MetricRegistry,
  gather: () => Promise<GatheredMetrics>,
): Promise<string> {
  let metrics: GatheredMetrics;
  try {
    metrics = await gather();
  } catch {
    return registry.text();
  }
  return metricsText(mergeMetrics(metrics));
}

/** pino calls the destination's flushSync after a fatal line. */
function createLog(
  level: LevelWithSilent,
  destination: LogDestination,
  time: () => string,
): Logger {
  return pino(
    {
      level,
      base: undefined,
      timestamp: () => `,"time":"${time()}"`,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: errorFields, error: errorFields, cause: errorFields },
      hooks: { streamWrite: redactLine },
    },
    destination,
  );
}

/** ISO 8601 texts, made once a millisecond. */
function isoTimes(clock: Clock): () => string {
  let madeForMs = Number.NaN;
  let text = "";
  return () => {
    const nowMs = clock.nowMs();
    if (nowMs !== madeForMs) {
      madeForMs = nowMs;
      text = new Date(nowMs).toISOString();
    }
    return text;
  };
}

function registerCommitMetrics(registry: MetricRegistry): {
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

interface OwnReadings {
  readonly lag: EventLoopLag;
  readonly destination: LogDestination;
  clampedCharges(): number;
}

function registerOwnMetrics(registry: MetricRegistry, readings: OwnReadings): void {
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
