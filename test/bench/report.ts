import type { Comparison } from "./compare.ts";
import type { Measurement } from "./driver.ts";
import type {
  AbortedStreams,
  BenchResults,
  ManyKeys,
  SeveralInstances,
  SeveralMeasurement,
} from "./results.ts";
import { LABELS, MAIN_CONNECTIONS } from "./sections.ts";
import { table } from "./table.ts";
import { judge } from "./targets.ts";

/** The whole result for a terminal. */
export function report(results: BenchResults): string {
  const { rows, delayed, manyKeys, aborts, laterStartMs } = results;
  const blocks = [
    `${results.machine}\n${results.database}\nGateway with authentication, rate limit, daily and monthly budget, ledger, metrics and request log on.`,
    comparisonBlock(results),
    coresBlock(rows),
    ...(results.several ? [severalBlock(results.several)] : []),
    [
      `commit latency (p50 of single inserts): ${ms(results.commitMs)}${delayed ? `; with commit_delay 2000: ${ms(delayed.commitMs)}` : ""}`,
      `first start: ${seconds(results.firstStartMs)}${laterStartMs === undefined ? "" : `; later start: ${seconds(laterStartMs)}`}`,
      ...(manyKeys ? [manyKeysLine(manyKeys)] : []),
      ...(aborts ? [abortsLine(aborts)] : []),
      ledgerLine(results),
    ].join("\n"),
    table(
      ["target", "measured", "bound", ""],
      judge(results).map(({ name, measured, bound, verdict }) => [name, measured, bound, verdict]),
      ["left", "right", "left", "left"],
    ),
    `Took ${seconds(results.tookMs)}.`,
  ];
  return `${blocks.filter((block) => block !== "").join("\n\n")}\n`;
}

function comparisonBlock({ rows, delayed, rounds, measureMs }: BenchResults): string {
  const lines = [
    ...rows.map((row) => comparisonLine(row, LABELS[row.label])),
    ...(delayed?.rows ?? []).map((row) =>
      comparisonLine(row, `${LABELS[row.label]}, commit_delay`),
    ),
  ];
  if (lines.length === 0) return "";
  const three = (name: string) => [name, "bare", "ratio"];
  const head = [
    "gateway against bare proxy",
    "conn",
    ...three("req/s"),
    ...three("p50 ms"),
    ...three("p99 ms"),
    ...three("CPU µs/req"),
    "added p50",
    "MB",
    ...three("peak MB"),
  ];
  const note = `Medians of ${rounds} rounds of ${measureMs / 1_000} s (at most 3 where there is no target), the two in turn; a ratio is the median of the rounds' ratios. A stream has 100 events, its upstream\nsends them as separate chunks in one write; spread: each in a write and a turn of its own. CPU is of the gateway's (the proxy's) process alone.`;
  return `${table(head, lines, ["left"])}\n${note}`;
}

function comparisonLine({ connections, ...row }: Comparison, label: string): string[] {
  const three = (field: keyof Measurement, digits: number) => [
    row.gateway[field].toFixed(digits),
    row.bare[field].toFixed(digits),
    row.ratio[field].toFixed(2),
  ];
  return [
    label,
    String(connections),
    ...three("ratePerSecond", 0),
    ...three("p50Ms", 2),
    ...three("p99Ms", 2),
    ...three("cpuMicrosPerRequest", 0),
    row.addedP50Ms.toFixed(2),
    row.gateway.residentMb.toFixed(0),
    ...three("peakMb", 0),
  ];
}

/** Shows whether what drives the two, or what answers them, was the bottleneck. */
function coresBlock(rows: readonly Comparison[]): string {
  const main = rows.filter(({ connections }) => connections === MAIN_CONNECTIONS);
  if (main.length === 0) return "";
  const line = (label: string, driven: string, measurement: Measurement) => [
    label,
    driven,
    measurement.targetCores.toFixed(2),
    measurement.loadCores.toFixed(2),
    measurement.upstreamCores.toFixed(2),
    measurement.restCores.toFixed(2),
  ];
  return table(
    ["processors busy", "driven", "itself", "load generator", "upstream", "database and rest"],
    main.flatMap(({ label, gateway, bare }) => [
      line(`${LABELS[label]}, ${MAIN_CONNECTIONS} connections`, "gateway", gateway),
      line("", "bare", bare),
    ]),
    ["left", "left"],
  );
}

function severalBlock(several: SeveralInstances): string {
  const line = (what: string, one: SeveralMeasurement, ratio: number | undefined) => [
    what,
    one.ratePerSecond.toFixed(0),
    ratio?.toFixed(2) ?? "",
    one.p50Ms.toFixed(2),
    one.p99Ms.toFixed(2),
    one.cpuMicrosPerRequest.toFixed(0),
  ];
  const lines = table(
    [
      `several, chat, ${MAIN_CONNECTIONS} connections`,
      "req/s",
      "ratio",
      "p50 ms",
      "p99 ms",
      "CPU µs/req",
    ],
    [
      line("alone", several.alone, undefined),
      line("one of several, with Redis", several.shared, several.sharedRatio),
      line("one of three", several.one, undefined),
      line("three", several.three, several.threeRatio),
    ],
    ["left"],
  );
  return [lines, ...several.findings.map((finding) => `wrong: ${finding}`)].join("\n");
}

function manyKeysLine(keys: ManyKeys): string {
  return `${keys.count} keys against one: ${keys.manyKeysRate.toFixed(0)} against ${keys.oneKeyRate.toFixed(0)} req/s (${keys.ratio.toFixed(2)}), CPU ${keys.manyKeysCpuMicros.toFixed(0)} against ${keys.oneKeyCpuMicros.toFixed(0)} µs/req, peak ${keys.peakMb.toFixed(0)} MB; first use of each: ${keys.firstTouchRate.toFixed(0)} req/s`;
}

function abortsLine(aborts: AbortedStreams): string {
  return `${aborts.count} streams aborted in ${seconds(aborts.tookMs)}: ${aborts.beforeMb.toFixed(0)} MB before, peak ${aborts.peakMb.toFixed(0)} MB, ${aborts.afterMb.toFixed(0)} MB after; settled ${ms(aborts.settledMs)} after the last, ${aborts.leftAtUpstream} left open at the upstream`;
}

function ledgerLine({ ledger, answers, aborts, wrongAnswers, firstWrong }: BenchResults): string {
  const wrong =
    wrongAnswers === 0 ? "" : `\nwrong answers: ${wrongAnswers}, the first: ${firstWrong}`;
  const counted = `${answers} answers${aborts ? ` and ${aborts.count} aborted streams` : ""}`;
  return ledger.isExact
    ? `ledger: one transaction for each of ${counted}; their sum is the balance${wrong}`
    : `ledger, after ${counted}: ${ledger.findings.join("; ")}${wrong}`;
}

function ms(value: number): string {
  return `${value.toFixed(2)} ms`;
}

function seconds(valueMs: number): string {
  return `${(valueMs / 1_000).toFixed(2)} s`;
}
