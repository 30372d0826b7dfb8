import type { Driver, Measurement, Run, Target, Workload } from "./driver.ts";

export interface Comparison {
  readonly label: "chat" | "stream" | "spread";
  readonly connections: number;
  /** Medians over the rounds. */
  readonly gateway: Measurement;
  readonly bare: Measurement;
  /** Gateway to bare proxy: the median of the rounds' own ratios, which a drifting machine disturbs least. */
  readonly ratio: Measurement;
  /** Of the gateway over the bare proxy. */
  readonly addedP50Ms: number;
}

export interface CompareOptions extends Pick<Run, "connections" | "warmupMs" | "measureMs"> {
  readonly label: "chat" | "stream" | "spread";
  readonly workload: Workload;
  readonly rounds: number;
}

/** Measures both in turn, round after round. */
export async function compare(
  driver: Driver,
  targets: { readonly gateway: Target; readonly bare: Target },
  { label, rounds, ...run }: CompareOptions,
): Promise<Comparison> {
  const gateway: Measurement[] = [];
  const bare: Measurement[] = [];
  for (let round = 0; round < rounds; round++) {
    bare.push(await driver.run({ ...run, target: targets.bare }));
    gateway.push(await driver.run({ ...run, target: targets.gateway }));
  }
  const added = gateway.map(({ p50Ms }, round) => p50Ms - bare[round]!.p50Ms);
  return {
    label,
    connections: run.connections,
    gateway: medianOf(gateway),
    bare: medianOf(bare),
    ratio: medianOf(gateway.map((one, round) => combine(one, bare[round]!, (a, b) => a / b))),
    addedP50Ms: median(added),
  };
}

export function medianOf(rounds: readonly Measurement[]): Measurement {
  return combine(rounds[0]!, rounds[0]!, (_a, _b, field) =>
    median(rounds.map((one) => one[field])),
  );
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length % 2 === 1) return sorted[middle]!;
  return ((sorted[middle - 1] ?? Number.NaN) + (sorted[middle] ?? Number.NaN)) / 2;
}

const FIELDS = [
  "ratePerSecond",
  "p50Ms",
  "p99Ms",
  "cpuMicrosPerRequest",
  "residentMb",
  "peakMb",
  "targetCores",
  "loadCores",
  "upstreamCores",
  "restCores",
] as const satisfies readonly (keyof Measurement)[];

function combine(
  first: Measurement,
  second: Measurement,
  join: (a: number, b: number, field: (typeof FIELDS)[number]) => number,
): Measurement {
  return Object.fromEntries(
    FIELDS.map((field) => [field, join(first[field], second[field], field)]),
  ) as unknown as Measurement;
}
