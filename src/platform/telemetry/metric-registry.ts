// Imports this file only, because the whole package loads OpenTelemetry and uses 5 MB of memory.
import type { Metric } from "prom-client";
import Registry from "prom-client/lib/registry.js";

type Labels = Readonly<Record<string, string | number>>;

export interface Sample {
  /** Differs from the metric's name in the parts of a histogram. */
  readonly metricName?: string;
  readonly labels: Labels;
  readonly value: number;
}

export interface MetricDescription {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge" | "histogram";
}

/** A metric with its values at one moment, as sent from one process to another. */
export interface MetricReport extends MetricDescription {
  readonly samples: readonly Sample[];
}

/** Returns values that were read before as Prometheus text. */
export function metricsText(reports: readonly MetricReport[]): Promise<string> {
  const registry = new MetricRegistry();
  for (const { samples, ...description } of reports) registry.register(description, () => samples);
  return registry.text();
}

/**
 * Metrics whose values are read at each scrape. prom-client renders the text; the counting is done in plain
 * objects, because prom-client's counters look up their labels at each increment.
 */
export class MetricRegistry {
  readonly #registry = new Registry();
  readonly #reads: (() => MetricReport)[] = [];

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** Registers a metric. Throws if its name is already in use. */
  register(description: MetricDescription, read: () => Iterable<Sample>): void {
    const metric = {
      ...description,
      get: async () => ({ ...description, values: [...read()], aggregator: "sum" as const }),
      reset: () => {},
    };
    this.#registry.registerMetric(metric as unknown as Metric);
    this.#reads.push(() => ({ ...description, samples: [...read()] }));
  }

  /**
   * Registers a single value. It is NaN if reading it fails, so that the other metrics stay
   * readable.
   */
  registerValue(description: MetricDescription, read: () => number): void {
    this.register(description, () => [{ labels: {}, value: readOrNaN(read) }]);
  }

  report(): MetricReport[] {
    return this.#reads.map((read) => read());
  }

  text(): Promise<string> {
    return this.#registry.metrics();
  }
}

function readOrNaN(read: () => number): number {
  try {
    return read();
  } catch {
    return Number.NaN;
  }
}

/** A Prometheus histogram. Observing costs two additions. */
export class Histogram {
  readonly #bounds: readonly number[];
  /** Counts by bucket, not cumulative. The last one counts the values above every bound. */
  readonly #counts: number[];
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Array<number>(bounds.length + 1).fill(0);
  }

  observe(value: number): void {
    let bucket = 0;
    while (bucket < this.#bounds.length && value > this.#bounds[bucket]!) bucket++;
    this.#counts[bucket]!++;
    this.#sum += value;
  }

  samples(name: string, labels: Labels): Sample[] {
    const samples: Sample[] = [];
    let cumulative = 0;
    for (let bucket = 0; bucket < this.#counts.length; bucket++) {
      cumulative += this.#counts[bucket]!;
      const le = this.#bounds[bucket] ?? "+Inf";
      samples.push({ metricName: `${name}_bucket`, labels: { ...labels, le }, value: cumulative });
    }
    samples.push({ metricName: `${name}_sum`, labels, value: this.#sum });
    samples.push({ metricName: `${name}_count`, labels, value: cumulative });
    return samples;
  }
}

/** The metrics of one of several processes. */
export interface ProcessReport {
  /** The value of the label `worker`. */
  readonly worker: string;
  readonly metrics: readonly MetricReport[];
  /** False if the process has ended or did not answer; its earlier counts still count. */
  readonly isCurrent: boolean;
}

export interface GatheredMetrics {
  readonly reports: readonly ProcessReport[];
  /** The number of processes that were requested to report. */
  readonly requested: number;
  readonly answered: number;
}

/** Gauges that are summed over the processes. Others are shown for each process. */
const SHARED_GAUGES: ReadonlySet<string> = new Set([
  "gateway_actors",
  "gateway_commit_queue",
  "gateway_fine_tuning_jobs",
  "gateway_holds_outstanding",
  "gateway_mailbox_depth",
  "gateway_requests_in_flight",
  "gateway_streams_running",
  "gateway_webhook_attempts_in_flight",
  "gateway_webhooks_owned",
]);
const WORKER_LABEL = "worker";

/**
 * Merges the metrics of several processes: sums counters, histograms and shared gauges, and gives other
 * gauges the label `worker`. The last known counts of a process that is slow or was replaced are included,
 * because a counter must not fall.
 */
export function mergeMetrics({ reports, requested, answered }: GatheredMetrics): MetricReport[] {
  const merged = new Map<string, { first: MetricReport; sums: Map<string, Sample> }>();
  for (const { worker, metrics, isCurrent } of reports) {
    for (const metric of metrics) {
      if (metric.type === "gauge" && !isCurrent) continue;
      const isPerWorker = metric.type === "gauge" && !SHARED_GAUGES.has(metric.name);
      const entry = merged.get(metric.name) ?? { first: metric, sums: new Map() };
      merged.set(metric.name, entry);
      for (const sample of metric.samples) {
        const labels = isPerWorker ? { ...sample.labels, [WORKER_LABEL]: worker } : sample.labels;
        addSample(entry.sums, { ...sample, labels });
      }
    }
  }
  return [
    ...[...merged.values()].map(({ first, sums }) => ({ ...first, samples: [...sums.values()] })),
    gauge("gateway_workers", "Worker processes that were asked for these metrics.", requested),
    gauge("gateway_workers_answered", "Worker processes that answered in time.", answered),
  ];
}

/** Merges the counters and histograms of processes that have ended into one report. */
export function mergeRetired(reports: readonly ProcessReport[]): ProcessReport {
  const counted = reports.map((report) => ({ ...report, isCurrent: false }));
  const metrics = mergeMetrics({ reports: counted, requested: 0, answered: 0 });
  return {
    worker: "retired",
    metrics: metrics.filter(({ type }) => type !== "gauge"),
    isCurrent: false,
  };
}

function addSample(sums: Map<string, Sample>, sample: Sample): void {
  const key = JSON.stringify([sample.metricName, ...sortedEntries(sample.labels)]);
  const before = sums.get(key);
  if (before === undefined || Number.isNaN(before.value)) sums.set(key, sample);
  // NaN is a value that could not be read: it must not replace the sum of the others.
  else if (!Number.isNaN(sample.value)) {
    sums.set(key, { ...before, value: before.value + sample.value });
  }
}

function sortedEntries(labels: Labels): [string, string | number][] {
  return Object.entries(labels).toSorted(([left], [right]) => (left < right ? -1 : 1));
}

function gauge(name: string, help: string, value: number): MetricReport {
  return { name, help, type: "gauge", samples: [{ labels: {}, value }] };
}
