import type { Labels, Sample } from "./metric-registry.ts";

/** Counts of observations by upper bound, as Prometheus has them; an observation is two additions. */
export class Histogram {
  readonly #bounds: readonly number[];
  /** Not cumulative; the last one counts what is above every bound. */
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
