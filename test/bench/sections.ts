import type { Database } from "../../db/client.ts";
import { measureAbortedStreams } from "./aborted-streams.ts";
import { type Comparison, compare } from "./compare.ts";
import type { Driver, Target, Workload } from "./driver.ts";
import { measureManyKeys } from "./many-keys.ts";
import type { BenchOptions, Section } from "./options.ts";
import type { BenchResults } from "./results.ts";

/** What measurements need. */
export interface Stage {
  readonly options: BenchOptions;
  readonly say: (progress: string) => void;
  readonly driver: Driver;
  readonly gateway: Target;
  readonly bare: Target;
  readonly upstreamPort: number;
  readonly sql: Database;
}

/** The load for which there are targets, and at which everything else is measured too. */
export const MAIN_CONNECTIONS = 32;
/** Until both have compiled what is hot. */
const JIT_WARMUP_MS = 3_000;

export const LABELS = { chat: "chat", stream: "stream", spread: "stream, spread" } as const;
type Label = keyof typeof LABELS;

const CHAT: Workload = { model: "instant", isStream: false };
const STREAM: Workload = { model: "instant", isStream: true };
const WORKLOADS: Readonly<Record<Label, Workload>> = {
  chat: CHAT,
  stream: STREAM,
  spread: { model: "spread", isStream: true },
};

/** Everything but what needs another start. */
export async function measureSections(
  stage: Stage,
): Promise<Pick<BenchResults, "rows" | "manyKeys" | "aborts">> {
  const { options, say, driver } = stage;
  const { sections, sideRounds, warmupMs, measureMs } = options;
  const rows: Comparison[] = [];
  const usesStreams = ["stream", "spread", "aborts"].some((name) => sections.has(name as Section));
  const usesChat = sections.has("chat") || sections.has("keys");
  await warmUp(stage, [...(usesChat ? [CHAT] : []), ...(usesStreams ? [STREAM] : [])]);
  for (const label of ["chat", "stream"] as const) {
    if (!sections.has(label)) continue;
    for (const connections of options.connections) {
      const rounds = connections === MAIN_CONNECTIONS ? options.rounds : sideRounds;
      rows.push(await measureRow(stage, label, connections, rounds));
    }
  }
  if (sections.has("spread")) {
    rows.push(await measureRow(stage, "spread", MAIN_CONNECTIONS, sideRounds));
  }
  let manyKeys: BenchResults["manyKeys"];
  if (sections.has("keys")) {
    say(`one key against ${options.manyKeys}`);
    const connections = MAIN_CONNECTIONS;
    const count = options.manyKeys;
    const run = { rounds: sideRounds, warmupMs, measureMs };
    manyKeys = await measureManyKeys({ ...stage, count, connections, ...run });
  }
  let aborts: BenchResults["aborts"];
  if (sections.has("aborts")) {
    say(`${options.abortedStreams} aborted streams`);
    aborts = await measureAbortedStreams({ ...stage, streams: options.abortedStreams, driver });
  }
  return { rows, manyKeys, aborts };
}

/** Chat and streams once more, after a start with slow commits. */
export async function measureDelayedCommits(stage: Stage): Promise<Comparison[]> {
  await warmUp(stage, [CHAT, STREAM]);
  const { sideRounds } = stage.options;
  return [
    await measureRow(stage, "chat", MAIN_CONNECTIONS, sideRounds),
    await measureRow(stage, "stream", MAIN_CONNECTIONS, sideRounds),
  ];
}

async function measureRow(
  stage: Stage,
  label: Label,
  connections: number,
  rounds: number,
): Promise<Comparison> {
  const { options, driver } = stage;
  const { warmupMs, measureMs } = options;
  stage.say(`${LABELS[label]}, ${connections} connections`);
  const workload = WORKLOADS[label];
  return await compare(driver, stage, {
    label,
    connections,
    workload,
    rounds,
    warmupMs,
    measureMs,
  });
}

async function warmUp(stage: Stage, workloads: readonly Workload[]): Promise<void> {
  const { options, driver, gateway, bare, say } = stage;
  say("warming up");
  const connections = MAIN_CONNECTIONS;
  const warmupMs = options.isQuick ? JIT_WARMUP_MS / 3 : JIT_WARMUP_MS;
  for (const workload of workloads) {
    for (const target of [bare, gateway]) {
      await driver.run({ target, workload, connections, warmupMs, measureMs: 1 });
    }
  }
}
