import { CLUSTER_CONNECTIONS } from "./clustered.ts";
import type { Comparison } from "./compare.ts";
import type { Measurement } from "./driver.ts";
import type {
  AbortedStreams,
  BenchResults,
  ClusteredGateways,
  GroupMeasurement,
  ManyKeys,
} from "./results.ts";
import { table } from "./table.ts";
import { judge } from "./targets.ts";

/** The whole result for a terminal. */
export function report(results: BenchResults): string {
  const { rows, manyKeys, aborts, laterStartMs, clustered } = results;
  const blocks = [
    `${results.machine}\n${results.database}\nGateway with authentication, rate limit, daily and monthly budget, ledger, metrics and request log on; the upstream speaks https.`,
    comparisonBlock(results),
    coresBlock(rows),
    ...(clustered ? [clusteredBlock(clustered)] : []),
    [
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

function comparisonBlock({ rows, rounds, measureMs }: BenchResults): string {
  if (rows.length === 0) return "";
  const three = (name: string) => [name, "bare", "ratio"];
  const added = (name: string) => [name, "bare", "added"];
  const head = [
    "gateway against bare proxy",
    "conn",
    ...three("per s"),
    ...added("p50 ms"),
    ...added("p99 ms"),
    ...added("event p99 ms"),
    ...three("CPU µs"),
    "MB",
    ...three("peak MB"),
    "commit ms",
  ];
  const note = `Medians of ${rounds} rounds of at least ${measureMs / 1_000} s, the two in turn; a ratio, or a difference, is the median of the rounds' own. Live streams: 500 open, an event every 40 ms in each;\nrate and CPU are of an event, p50 and p99 of the time to the first event, "event p99" of the way of later events. Chat, real: the upstream answers after 300 ms, and each client waits for a random 0 to 60 ms before its next request, so that arrivals are independent. The limits: it answers at once,\nstreams with 100 events in one write. CPU is of the gateway's (the proxy's) process alone. Commit: p50 of single durable inserts, just before the row.`;
  return `${table(head, rows.map(comparisonLine), ["left"])}\n${note}`;
}

function comparisonLine({ row, commitMs, ...compared }: Comparison): string[] {
  const { gateway, bare, ratio, added } = compared;
  const number = (value: number, digits: number) =>
    Number.isNaN(value) ? "" : value.toFixed(digits);
  const three = (field: keyof Measurement, digits: number, last = ratio) => [
    number(gateway[field], digits),
    number(bare[field], digits),
    number(last[field], 2),
  ];
  return [
    row.title,
    String(row.connections),
    ...three("ratePerSecond", 0),
    ...three("p50Ms", 2, added),
    ...three("p99Ms", 2, added),
    ...three("eventP99Ms", 2, added),
    ...three("cpuMicros", 1),
    gateway.residentMb.toFixed(0),
    ...three("peakMb", 0),
    commitMs.toFixed(2),
  ];
}

/** Shows whether what drives the two, or what answers them, was the bottleneck. */
function coresBlock(rows: readonly Comparison[]): string {
  if (rows.length === 0) return "";
  const line = (title: string, driven: string, measurement: Measurement) => [
    title,
    driven,
    measurement.targetCores.toFixed(2),
    measurement.loadCores.toFixed(2),
    measurement.upstreamCores.toFixed(2),
    measurement.restCores.toFixed(2),
  ];
  return table(
    ["processors busy", "driven", "itself", "load generator", "upstream", "database and rest"],
    rows.flatMap(({ row, gateway, bare }) => [
      line(`${row.title}, ${row.connections} connections`, "gateway", gateway),
      line("", "bare", bare),
    ]),
    ["left", "left"],
  );
}

function clusteredBlock({ singleNode, one, three, findings }: ClusteredGateways): string {
  const line = (what: string, group: GroupMeasurement) => [
    what,
    group.ratePerSecond.toFixed(0),
    group.rateRatio.toFixed(2),
    group.p50Ms.toFixed(2),
    group.p99Ms.toFixed(2),
    group.cpuMicros.toFixed(0),
    group.cpuRatio.toFixed(2),
  ];
  const lines = table(
    [
      `chat, limit, ${CLUSTER_CONNECTIONS} connections in all`,
      "req/s",
      "ratio",
      "p50 ms",
      "p99 ms",
      "CPU µs/req",
      "ratio",
    ],
    [
      line("single-node", singleNode),
      line("one clustered, with Redis", one),
      line("three clustered", three),
    ],
    ["left"],
  );
  return [lines, ...findings.map((finding) => `wrong: ${finding}`)].join("\n");
}

function manyKeysLine(keys: ManyKeys): string {
  return `${keys.count} keys against one: ${keys.manyKeysRate.toFixed(0)} against ${keys.oneKeyRate.toFixed(0)} req/s (${keys.ratio.toFixed(2)}), CPU ${keys.manyKeysCpuMicros.toFixed(0)} against ${keys.oneKeyCpuMicros.toFixed(0)} µs/req, peak ${keys.peakMb.toFixed(0)} MB; first use of each: ${keys.firstTouchRate.toFixed(0)} req/s`;
}

function abortsLine(aborts: AbortedStreams): string {
  return `${aborts.count} streams aborted in ${seconds(aborts.tookMs)}: ${aborts.beforeMb.toFixed(0)} MB before, peak ${aborts.peakMb.toFixed(0)} MB, ${aborts.afterMb.toFixed(0)} MB after; settled ${aborts.settledMs.toFixed(2)} ms after the last, ${aborts.leftAtUpstream} left open at the upstream`;
}

function ledgerLine({ ledger, answers, aborts, wrongAnswers, firstWrong }: BenchResults): string {
  const wrong =
    wrongAnswers === 0 ? "" : `\nwrong answers: ${wrongAnswers}, the first: ${firstWrong}`;
  const counted = `${answers} answers${aborts ? ` and ${aborts.count} aborted streams` : ""}`;
  return ledger.isExact
    ? `ledger: one transaction for each of ${counted}; their sum is the balance${wrong}`
    : `ledger, after ${counted}: ${ledger.findings.join("; ")}${wrong}`;
}

function seconds(valueMs: number): string {
  return `${(valueMs / 1_000).toFixed(2)} s`;
}
