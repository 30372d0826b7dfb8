import type { Comparison } from "./compare.ts";
import type { BenchResults } from "./results.ts";

export interface TargetResult {
  readonly name: string;
  readonly measured: string;
  readonly bound: string;
  readonly verdict: "pass" | "FAIL";
}

/** What the gateway is held to in comparison with the bare proxy, by row. */
const ROW_BOUNDS: Readonly<Record<string, (row: Comparison) => TargetResult[]>> = {
  live: (row) => [
    atMost("live streams: CPU an event, to bare proxy", row.ratio.cpuMicros, 1.5, "ratio"),
    atMost("live streams: first event later, p50", row.added.p50Ms, 2 + row.commitMs, "ms"),
    atMost("live streams: later events, p99 later", row.added.eventP99Ms, 5, "ms"),
    atMost("live streams: memory a stream", row.kilobytesAConnection, 80, "KB"),
  ],
  real: (row) => [
    atMost("chat, real: CPU to bare proxy", row.ratio.cpuMicros, 2, "ratio"),
    atMost("chat, real: added p50", row.added.p50Ms, 4, "ms"),
    atMost("chat, real: added p99", row.added.p99Ms, 15, "ms"),
  ],
  chat: (row) => limits(row, 1, 1.1),
  stream: (row) => limits(row, 1.1, 1.1),
  "chat-32": (row) => limits(row, 0.4, 2),
  "anthropic-live": translated,
  "anthropic-chat": translated,
  "anthropic-stream": translated,
};
const CLUSTERED_CPU_RATIO = 1.5;
const PEAK_MB = 200;
const ABORTED_GROWTH_MB = 30;
const FIRST_START_MS = 10_000;
const LATER_START_MS = 2_000;

/** What the gateway is held to, as far as it was measured. */
export function judge(results: BenchResults): TargetResult[] {
  const { rows, aborts, laterStartMs, manyKeys, clustered } = results;
  const peaksMb = rows.map(({ gateway }) => gateway.peakMb);
  if (manyKeys !== undefined) peaksMb.push(manyKeys.peakMb);
  const targets = rows.flatMap((row) => ROW_BOUNDS[row.row.name]?.(row) ?? []);
  if (clustered !== undefined) {
    const { one, three, findings } = clustered;
    targets.push(
      atMost("one clustered: CPU to single-node", one.cpuRatio, CLUSTERED_CPU_RATIO, "ratio"),
      atMost("three clustered: CPU to single-node", three.cpuRatio, CLUSTERED_CPU_RATIO, "ratio"),
      atMost("differences in the ledgers of the cluster", findings.length, 0, ""),
    );
  }
  if (peaksMb.length > 0) {
    targets.push(atMost("peak resident memory under load", Math.max(...peaksMb), PEAK_MB, "MB"));
  }
  if (aborts !== undefined) {
    const grownMb = aborts.afterMb - aborts.beforeMb;
    targets.push(
      atMost(`memory kept after ${aborts.count} aborted streams`, grownMb, ABORTED_GROWTH_MB, "MB"),
      atMost("money still held after them", aborts.leftHolds, 0, ""),
      atMost("streams still open at the upstream after them", aborts.leftAtUpstream, 0, ""),
    );
  }
  targets.push(atMost("first start", results.firstStartMs, FIRST_START_MS, "ms"));
  if (laterStartMs !== undefined) {
    targets.push(atMost("later start", laterStartMs, LATER_START_MS, "ms"));
  }
  targets.push(atMost("wrong answers", results.wrongAnswers, 0, ""));
  targets.push(atMost("differences in the ledger", results.ledger.findings.length, 0, ""));
  return targets;
}

function limits({ row, ratio }: Comparison, leastRate: number, mostCpu: number): TargetResult[] {
  const what = `${row.title}, ${row.connections} connections`;
  const rate = ratio.ratePerSecond;
  return [
    {
      name: `${what}: rate to bare proxy`,
      measured: rate.toFixed(2),
      bound: `≥ ${leastRate.toFixed(2)}`,
      verdict: rate >= leastRate ? "pass" : "FAIL",
    },
    atMost(`${what}: CPU to bare proxy`, ratio.cpuMicros, mostCpu, "ratio"),
  ];
}

/** The bare proxy hands on what the gateway reads and writes in another wire. */
function translated({ row, ratio }: Comparison): TargetResult[] {
  return [atMost(`${row.title}: CPU to bare proxy`, ratio.cpuMicros, 2, "ratio")];
}

function atMost(name: string, value: number, bound: number, unit: string): TargetResult {
  const digits = unit === "ratio" || (unit === "ms" && bound < 100) ? 2 : 0;
  const suffix = unit === "ratio" ? "" : unit;
  const text = (number: number) => `${number.toFixed(digits)} ${suffix}`.trim();
  return {
    name,
    measured: text(value),
    bound: `≤ ${text(bound)}`,
    verdict: value <= bound ? "pass" : "FAIL",
  };
}
