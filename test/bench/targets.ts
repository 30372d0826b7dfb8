import type { Comparison } from "./compare.ts";
import type { BenchResults } from "./results.ts";
import { LABELS, MAIN_CONNECTIONS } from "./sections.ts";

export interface TargetResult {
  readonly name: string;
  readonly measured: string;
  readonly bound: string;
  readonly verdict: "pass" | "pass, short of the aim" | "FAIL";
}

const RATE_RATIO = { bound: 0.5, aim: 0.6 };
const CPU_RATIO = { bound: 2.2, aim: 2 };
const ADDED_P50_MS = 2;
const COMMITS_IN_ADDED_P50 = 2;
const PEAK_MB = 200;
const ABORTED_GROWTH_MB = 30;
const FIRST_START_MS = 10_000;
const LATER_START_MS = 2_000;

/** What the gateway is held to, as far as it was measured. */
export function judge(results: BenchResults): TargetResult[] {
  const { rows, delayed, aborts, laterStartMs, manyKeys } = results;
  const peaksMb = rows.map(({ gateway }) => gateway.peakMb);
  if (manyKeys !== undefined) peaksMb.push(manyKeys.peakMb);
  const targets = rows
    .filter(({ connections, label }) => connections === MAIN_CONNECTIONS && label !== "spread")
    .flatMap((row) => [...relative(row), addedLatency(row, results.commitMs, "")]);
  for (const row of delayed?.rows ?? []) {
    targets.push(addedLatency(row, delayed!.commitMs, ", slow commits"));
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
  if (results.several !== undefined) {
    const wrong = results.several.findings.length;
    targets.push(atMost("differences in the ledgers of several", wrong, 0, ""));
  }
  targets.push(atMost("first start", results.firstStartMs, FIRST_START_MS, "ms"));
  if (laterStartMs !== undefined) {
    targets.push(atMost("later start", laterStartMs, LATER_START_MS, "ms"));
  }
  targets.push(atMost("wrong answers", results.wrongAnswers, 0, ""));
  targets.push(atMost("differences in the ledger", results.ledger.findings.length, 0, ""));
  return targets;
}

function relative({ label, ratio }: Comparison): TargetResult[] {
  const what = `${LABELS[label]}, ${MAIN_CONNECTIONS} connections`;
  const rate = ratio.ratePerSecond;
  const cpu = ratio.cpuMicrosPerRequest;
  return [
    {
      name: `${what}: rate to bare proxy`,
      measured: rate.toFixed(2),
      bound: `≥ ${RATE_RATIO.bound}, aim ${RATE_RATIO.aim}`,
      verdict: verdict(rate >= RATE_RATIO.bound, rate >= RATE_RATIO.aim),
    },
    {
      name: `${what}: CPU to bare proxy`,
      measured: cpu.toFixed(2),
      bound: `≤ ${CPU_RATIO.bound}, aim ${CPU_RATIO.aim}`,
      verdict: verdict(cpu <= CPU_RATIO.bound, cpu <= CPU_RATIO.aim),
    },
  ];
}

function addedLatency({ label, addedP50Ms }: Comparison, commitMs: number, when: string) {
  const bound = ADDED_P50_MS + COMMITS_IN_ADDED_P50 * commitMs;
  const name = `${LABELS[label]}, ${MAIN_CONNECTIONS} connections${when}: added p50`;
  return atMost(name, addedP50Ms, bound, "ms");
}

function atMost(name: string, value: number, bound: number, unit: string): TargetResult {
  const digits = unit === "ms" && bound < 100 ? 2 : 0;
  const text = (number: number) => `${number.toFixed(digits)} ${unit}`.trim();
  return {
    name,
    measured: text(value),
    bound: `≤ ${text(bound)}`,
    verdict: verdict(value <= bound, true),
  };
}

function verdict(isPassed: boolean, isAimed: boolean): TargetResult["verdict"] {
  if (!isPassed) return "FAIL";
  return isAimed ? "pass" : "pass, short of the aim";
}
