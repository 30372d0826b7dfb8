import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import type { Database } from "../../db/client.ts";
import { type BenchDatabase, describeDatabase, prepareDatabase } from "./bench-database.ts";
import { createKeys } from "./bench-keys.ts";
import { startChild, startServer } from "./children.ts";
import type { Cleanups } from "./cleanups.ts";
import { commitLatencyMs, delayCommits } from "./commit-latency.ts";
import { Driver, type Target } from "./driver.ts";
import {
  dataDirOf,
  type GatewayOptions,
  type GatewayProcess,
  startEnvironment,
  startGateway,
} from "./gateway-process.ts";
import { checkLedger } from "./ledger-check.ts";
import type { BenchOptions } from "./options.ts";
import type { BenchResults } from "./results.ts";
import {
  MAIN_CONNECTIONS,
  measureDelayedCommits,
  measureSections,
  type Stage,
} from "./sections.ts";
import { measureSeveral } from "./several.ts";

/** Starts everything, measures what was asked for, and compares the ledger with what was answered. */
export async function runBench(
  options: BenchOptions,
  cleanups: Cleanups,
  say: (progress: string) => void,
): Promise<BenchResults> {
  const startedMs = performance.now();
  const stand = await build(options, cleanups, say);
  const { driver, sql } = stand.stage;
  const database = await describeDatabase(sql);
  const commitMs = await commitLatencyMs(sql);
  const measured = await measureSections(stand.stage);
  const again = await measureAgain(stand, cleanups);
  const several = options.sections.has("several")
    ? await measureSeveral(stand.stage, stand.gatewayOptions, MAIN_CONNECTIONS, cleanups)
    : undefined;
  const ledger = await checkLedger(again.sql, {
    answers: driver.gatewayAnswers,
    abortedStreams: driver.abortedStreams,
  });
  return {
    machine: `Bun ${Bun.version}, ${cpus().length} × ${cpus()[0]?.model ?? "processor"}`,
    database: `${options.databaseUrl === undefined ? "embedded" : "given"} ${database}`,
    rounds: options.rounds,
    measureMs: options.measureMs,
    commitMs,
    firstStartMs: stand.gateway.startMs,
    laterStartMs: again.laterStartMs,
    ...measured,
    delayed: again.delayed,
    several,
    ledger,
    answers: driver.gatewayAnswers,
    wrongAnswers: driver.wrong,
    firstWrong: driver.firstWrong,
    tookMs: performance.now() - startedMs,
  };
}

interface Stand {
  readonly stage: Stage;
  readonly database: BenchDatabase;
  readonly gateway: GatewayProcess;
  readonly gatewayOptions: GatewayOptions;
}

async function build(
  options: BenchOptions,
  cleanups: Cleanups,
  say: (progress: string) => void,
): Promise<Stand> {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
  cleanups.add(() => rmSync(folder, { recursive: true, force: true }));
  // As root the database runs as another user, who has to pass through.
  chmodSync(folder, 0o711);
  const upstream = await startServer("upstream.ts", cleanups);
  const upstreamUrl = `http://127.0.0.1:${upstream.port}`;
  const bare = await startServer("bare-proxy.ts", cleanups, [upstreamUrl], startEnvironment());
  const load = startChild("load.ts", cleanups);
  await load.next();
  const database = await prepareDatabase(options.databaseUrl, dataDirOf(folder));
  cleanups.add(() => database.drop());
  say("starting the gateway for the first time");
  const { logPath, profileDir } = options;
  const gatewayOptions = {
    folder,
    upstreamPort: upstream.port,
    databaseUrl: database.url,
    logPath,
    profileDir,
  };
  const gateway = await startGateway(gatewayOptions, cleanups);
  const sql = database.connect();
  cleanups.add(() => sql.end({ timeout: 1 }));
  const [key = ""] = await createKeys(sql, 1);
  const stage: Stage = {
    options,
    say,
    driver: new Driver(load, upstream.pid),
    gateway: { name: "gateway", pid: gateway.pid, port: gateway.port, key },
    bare: { name: "bare", pid: bare.pid, port: bare.port, key },
    upstreamPort: upstream.port,
    sql,
  };
  return { stage, database, gateway, gatewayOptions };
}

/** Starts the gateway a second time, on what the first one left, with slow commits where they are wanted. */
async function measureAgain(
  { stage, database, gateway, gatewayOptions }: Stand,
  cleanups: Cleanups,
) {
  const { sections } = stage.options;
  if (!sections.has("start") && !sections.has("commit-delay")) return { sql: stage.sql };
  const isDelayed = sections.has("commit-delay") && (await delayCommits(stage.sql));
  stage.say("starting the gateway again");
  await stage.sql.end({ timeout: 1 });
  await gateway.stop();
  const second = await startGateway(gatewayOptions, cleanups);
  const sql: Database = database.connect();
  cleanups.add(() => sql.end({ timeout: 1 }));
  const target: Target = { ...stage.gateway, pid: second.pid, port: second.port };
  const commitMs = await commitLatencyMs(sql);
  const rows = isDelayed ? await measureDelayedCommits({ ...stage, gateway: target, sql }) : [];
  return {
    sql,
    laterStartMs: second.startMs,
    delayed: isDelayed ? { commitMs, rows } : undefined,
  };
}
