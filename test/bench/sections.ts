import type { Database } from "../../db/client.ts";
import { measureAbortedStreams } from "./aborted-streams.ts";
import { commitLatencyMs } from "./commit-latency.ts";
import { type Comparison, compare, type Row } from "./compare.ts";
import { type Driver, isOfMessages, type Target } from "./driver.ts";
import { measureManyKeys } from "./many-keys.ts";
import type { BenchOptions } from "./options.ts";
import type { BenchResults } from "./results.ts";
import { CHAT, LIVE, ROWS, STREAM } from "./rows.ts";

/** What measurements need. */
export interface Stage {
  readonly options: BenchOptions;
  readonly say: (progress: string) => void;
  readonly driver: Driver;
  readonly gateway: Target;
  readonly bare: Target;
  /** Go's reverse proxy, if it was asked for and Go is installed. */
  readonly go: Target | undefined;
  readonly upstreamPort: number;
  readonly sql: Database;
}

/** Of measurements that have no row. */
const SIDE_CONNECTIONS = 32;
/** Until both have compiled what is hot. */
const JIT_WARMUP_MS = 3_000;

/** Everything but what needs another start. */
export async function measureSections(
  stage: Stage,
): Promise<Pick<BenchResults, "rows" | "manyKeys" | "aborts">> {
  const { options, say, driver } = stage;
  const { sections, sideRounds, warmupMs, measureMs } = options;
  const wanted = ROWS.filter(({ name }) => sections.has(name));
  await warmUp(stage, wanted);
  const rows: Comparison[] = [];
  for (const row of wanted) {
    say(`${row.title}, ${row.connections} connections`);
    const commitMs = await commitLatencyMs(stage.sql);
    const { rounds } = options;
    const times = { rounds, commitMs, warmupMs, measureMs };
    rows.push(await compare(driver, stage, { row, ...times }));
    if (stage.go === undefined) continue;
    // Its name has no bounds in targets.ts.
    const goRow = { ...row, name: `${row.name}-go`, title: `${row.title} (bare: Go)` };
    const targets = { gateway: stage.gateway, bare: stage.go };
    rows.push(await compare(driver, targets, { row: goRow, ...times }));
  }
  let manyKeys: BenchResults["manyKeys"];
  if (sections.has("keys")) {
    say(`one key against ${options.manyKeys}`);
    const connections = SIDE_CONNECTIONS;
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

async function warmUp(stage: Stage, rows: readonly Row[]): Promise<void> {
  const { options, driver, gateway, bare, go, say } = stage;
  const { sections } = options;
  const chats = rows.filter(({ workload }) => !isOfMessages(workload.model));
  const usesStreams = sections.has("aborts") || chats.some(({ workload }) => workload.isStream);
  const usesChat = sections.has("keys") || chats.some(({ workload }) => !workload.isStream);
  const workloads = [
    ...(usesChat ? [CHAT] : []),
    ...(usesStreams ? [STREAM] : []),
    ...(sections.has("live") ? [LIVE] : []),
    ...rows.map(({ workload }) => workload).filter(({ model }) => isOfMessages(model)),
  ];
  say("warming up");
  const connections = SIDE_CONNECTIONS;
  const warmupMs = options.isQuick ? JIT_WARMUP_MS / 3 : JIT_WARMUP_MS;
  for (const workload of workloads) {
    for (const target of [bare, gateway, ...(go === undefined ? [] : [go])]) {
      await driver.run({ target, workload, connections, warmupMs, measureMs: 1 });
    }
  }
}
