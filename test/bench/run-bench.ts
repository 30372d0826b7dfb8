import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import type { Database } from "../../db/client.ts";
import { type BenchDatabase, describeDatabase, prepareDatabase } from "./bench-database.ts";
import { createKeys } from "./bench-keys.ts";
import { startChild, startServer } from "./children.ts";
import type { Cleanups } from "./cleanups.ts";
import { measureClustered } from "./clustered.ts";
import { Driver } from "./driver.ts";
import {
  dataDirOf,
  type GatewayOptions,
  type GatewayProcess,
  startEnvironment,
  startGateway,
} from "./gateway-process.ts";
import { startGoProxy } from "./go-proxy.ts";
import { checkLedger } from "./ledger-check.ts";
import type { BenchOptions } from "./options.ts";
import type { BenchResults } from "./results.ts";
import { measureSections, type Stage } from "./sections.ts";
import { TRUST, upstreamUrl } from "./upstream-address.ts";

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
  const measured = await measureSections(stand.stage);
  const again = await measureAgain(stand, cleanups);
  const clustered = options.sections.has("clustered")
    ? await measureClustered(stand.stage, stand.gatewayOptions, cleanups)
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
    firstStartMs: stand.gateway.startMs,
    laterStartMs: again.laterStartMs,
    ...measured,
    clustered,
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
  const bare = await startServer("bare-proxy.ts", cleanups, [upstreamUrl(upstream.port)], {
    ...startEnvironment(),
    ...TRUST,
  });
  const go = options.withGo
    ? await startGoProxy(upstreamUrl(upstream.port), folder, cleanups)
    : undefined;
  if (options.withGo && go === undefined) say("skipping Go's reverse proxy: go is not installed");
  const load = startChild("load.ts", cleanups);
  await load.next();
  const database = await prepareDatabase(options.databaseUrl, dataDirOf(folder));
  cleanups.add(() => database.drop());
  say("starting the gateway for the first time");
  const { settings, logPath, profileDir } = options;
  const gatewayOptions = {
    folder,
    upstreamPort: upstream.port,
    databaseUrl: database.url,
    logPath,
    profileDir,
    settings,
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
    go: go && { name: "go", ...go, key },
    upstreamPort: upstream.port,
    sql,
  };
  return { stage, database, gateway, gatewayOptions };
}

/** Starts the gateway a second time, on what the first one left. */
async function measureAgain(
  { stage, database, gateway, gatewayOptions }: Stand,
  cleanups: Cleanups,
): Promise<{ readonly sql: Database; readonly laterStartMs?: number }> {
  if (!stage.options.sections.has("start")) return { sql: stage.sql };
  stage.say("starting the gateway again");
  await stage.sql.end({ timeout: 1 });
  await gateway.stop();
  const second = await startGateway(gatewayOptions, cleanups);
  const sql = database.connect();
  cleanups.add(() => sql.end({ timeout: 1 }));
  return { sql, laterStartMs: second.startMs };
}
