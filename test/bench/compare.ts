import type { Driver, Measurement, Run, Target, Workload } from "./driver.ts";

/** One kind of load at which gateway and bare proxy are compared. */
export interface Row {
  readonly name: string;
  /** What it is called in the report. */
  readonly title: string;
  readonly workload: Workload;
  readonly connections: number;
  /** Its answers take this long by themselves: requests are spread over it, and a round takes as long. */
  readonly answerMs: number;
  /** Mean think time of a client between two requests, which keeps the clients out of step; undefined: 0. */
  readonly meanThinkMs?: number | undefined;
}

export interface Comparison {
  readonly row: Row;
  /** Medians over the rounds. */
  readonly gateway: Measurement;
  readonly bare: Measurement;
  /** Gateway to bare proxy: the median of the rounds' own ratios, which a drifting machine disturbs least. */
  readonly ratio: Measurement;
  /** Gateway less bare proxy: the median of the rounds' own differences. */
  readonly added: Measurement;
  /** By how much the gateway grew over its quiet state in the first round, for each connection. */
  readonly kilobytesAConnection: number;
  /** Of one small durable insert, taken just before. */
  readonly commitMs: number;
}

export interface CompareOptions extends Pick<Run, "warmupMs" | "measureMs"> {
  readonly row: Row;
  readonly rounds: number;
  readonly commitMs: number;
}

const KB_PER_MB = 1024;

/** Measures both in turn, round after round. */
export async function compare(
  driver: Driver,
  targets: { readonly gateway: Target; readonly bare: Target },
  { row, rounds, commitMs, ...times }: CompareOptions,
): Promise<Comparison> {
  const { workload, connections, answerMs, meanThinkMs } = row;
  const run = {
    workload,
    connections,
    spreadMs: answerMs,
    meanThinkMs,
    warmupMs: times.warmupMs + answerMs,
    measureMs: Math.max(times.measureMs, answerMs),
  };
  const gateway: Measurement[] = [];
  const bare: Measurement[] = [];
  for (let round = 0; round < rounds; round++) {
    bare.push(await driver.run({ ...run, target: targets.bare }));
    gateway.push(await driver.run({ ...run, target: targets.gateway }));
  }
  const pairs = (join: (a: number, b: number) => number) =>
    medianOf(gateway.map((one, round) => combine(one, bare[round]!, join)));
  const first = gateway[0]!;
  return {
    row,
    gateway: medianOf(gateway),
    bare: medianOf(bare),
    ratio: pairs((a, b) => a / b),
    added: pairs((a, b) => a - b),
    kilobytesAConnection: ((first.peakMb - first.quietMb) * KB_PER_MB) / connections,
    commitMs,
  };
}

function medianOf(rounds: readonly Measurement[]): Measurement {
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
  "eventP50Ms",
  "eventP99Ms",
  "cpuMicros",
  "quietMb",
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
