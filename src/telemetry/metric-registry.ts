import type { Metric } from "prom-client";
// The file alone: the package as a whole loads OpenTelemetry and takes 5 MB of memory.
import Registry from "prom-client/lib/registry.js";

export type Labels = Readonly<Record<string, string | number>>;

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

/** Renders values that were read before as Prometheus text. */
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

  /** Throws if the name is taken. */
  register(description: MetricDescription, read: () => Iterable<Sample>): void {
    const metric = {
      ...description,
      get: async () => ({ ...description, values: [...read()], aggregator: "sum" as const }),
      reset: () => {},
    };
    this.#registry.registerMetric(metric as unknown as Metric);
    this.#reads.push(() => ({ ...description, samples: [...read()] }));
  }

  /** A single value; NaN if reading it fails, so that the other metrics stay readable. */
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
  /** Not cumulative; the last one counts the values above every bound. */
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
