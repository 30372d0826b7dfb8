import type { Metric } from "prom-client";
// By its file: the package as a whole brings OpenTelemetry along, and takes 5 MB.
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

/** A metric with its values at one moment, as one process tells it another. */
export interface MetricReport extends MetricDescription {
  readonly samples: readonly Sample[];
}

/** Prometheus text of values that are there already. */
export function metricsText(reports: readonly MetricReport[]): Promise<string> {
  const registry = new MetricRegistry();
  for (const { samples, ...description } of reports) registry.register(description, () => samples);
  return registry.text();
}

/**
 * Metrics whose values are read when they are collected. Counting itself happens in plain objects:
 * prom-client's own counters look their labels up at each increment, which is too slow for the path
 * of every request. It writes the text.
 */
export class MetricRegistry {
  readonly #registry = new Registry();
  readonly #reads: (() => MetricReport)[] = [];

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** Throws where the name is taken. */
  register(description: MetricDescription, read: () => Iterable<Sample>): void {
    const metric = {
      ...description,
      get: async () => ({ ...description, values: [...read()], aggregator: "sum" as const }),
      reset: () => {},
    };
    this.#registry.registerMetric(metric as unknown as Metric);
    this.#reads.push(() => ({ ...description, samples: [...read()] }));
  }

  /** A single value; NaN where reading fails, so that one broken gauge leaves the others readable. */
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
