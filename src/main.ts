import { version } from "../package.json";
import { connectInstance } from "./main/compose/base.ts";
import {
  asUnusable,
  foreignDatabase,
  openDatabase,
  prepareDatabase,
  type StartedDatabase,
} from "./main/start/database.ts";
import { announce, createFirstKeys, terminalOf } from "./main/start/first-keys.ts";
import { openMasterKeys } from "./main/start/master-key.ts";
import { freePort } from "./main/start/port.ts";
import { StopSignals } from "./main/start/stop.ts";
import { shareMetrics } from "./main/start/worker-metrics.ts";
import { READY_MESSAGE, readRole, reportAlive, startWorkers } from "./main/start/workers.ts";
import { type GatewayConfig, readCheckedConfig, readConfig } from "./platform/config.ts";
import { createTelemetry } from "./platform/telemetry/create-telemetry.ts";
import type { Telemetry } from "./platform/telemetry/interface.ts";

/** Ends the process with exit code 1 and one line: the failure and its remedy. */
function fail(error: unknown): never {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
}

/** Reads the settings. A worker skips the slow checks, because its parent has done them. */
function readStartConfig(
  kind: ReturnType<typeof readRole>["kind"],
): GatewayConfig | Promise<GatewayConfig> {
  if (kind === "worker") return readConfig(process.env);
  return readCheckedConfig(process.env, async (config, faults) => {
    const { checkFileModels } = await import("./providers/catalogue/configured-catalogue.ts");
    await checkFileModels(config, faults);
  });
}

/** Returns the format of the log. People read a terminal, programs read everything else. */
function logOutput({ logFormat }: GatewayConfig) {
  const isTerminal = process.stdout.isTTY === true;
  const automatic = isTerminal ? ("text" as const) : ("json" as const);
  const { NO_COLOR = "", TERM } = process.env;
  return {
    format: logFormat === "auto" ? automatic : logFormat,
    hasColors: isTerminal && NO_COLOR === "" && TERM !== "dumb",
  };
}

async function start(): Promise<void> {
  const role = readRole(process.argv.slice(2));
  const config = await readStartConfig(role.kind);
  const telemetry = createTelemetry({ level: config.logLevel, ...logOutput(config) });
  // Workers share the log of their parent, whose first line covers them.
  if (role.kind !== "worker") telemetry.log.info({ version }, `starting model-gateway ${version}`);
  for (const warning of role.kind === "worker" ? [] : config.warnings) telemetry.log.warn(warning);
  const onSignal = (signal: string) => telemetry.log.info(`stopping: ${signal}`);
  const signals = new StopSignals(onSignal, process.env);
  if (role.kind === "worker") return startAsWorker(config, telemetry, signals);
  if (role.kind === "single") return startSingleNode(config, telemetry, signals);
  await startWorkers({
    count: role.workers,
    script: import.meta.path,
    config,
    environment: process.env,
    telemetry,
    signals,
  });
}

/**
 * Loads the larger part of the program while the database starts. A rejected start and the parent of
 * workers do not load it.
 */
const loadServing = () => import("./main/start/serve.ts");

async function startSingleNode(
  config: GatewayConfig,
  telemetry: Telemetry,
  signals: StopSignals,
): Promise<void> {
  // First, so that a start on a used port creates no database and shows no keys.
  await freePort(config);
  const serving = loadServing();
  const database = await openDatabase(config, telemetry.log);
  try {
    const { session, instance } = await connect(config, database, telemetry, signals);
    const { keyring, notice } = await openMasterKeys(config, session);
    if (notice !== undefined) telemetry.log.warn(notice);
    const firstStart = await createFirstKeys(config, session, terminalOf(telemetry));
    void session.end({ timeout: SESSION_END_SECONDS });
    const { serve } = await serving;
    const port = await serve({
      config,
      database,
      instance,
      keyring,
      telemetry,
      signals,
      sharesPort: false,
      onStopFailed: fail,
    });
    announce(telemetry, config, port, firstStart);
  } catch (error) {
    await database.stop();
    throw asUnusable(config, error);
  }
}

const SESSION_END_SECONDS = 5;

/** Opens all connections at the same time, because opening one may take seconds. */
async function connect(
  config: GatewayConfig,
  database: StartedDatabase,
  telemetry: Telemetry,
  signals: StopSignals,
) {
  const instance = connectInstance({ config, database: database.target, telemetry });
  const assertNotStopped = () => signals.assertNone();
  const { target } = database;
  const session = await prepareDatabase({ config, target, log: telemetry.log, assertNotStopped });
  assertNotStopped();
  return { instance, session };
}

/** Starts a worker. Its parent has prepared the database and the keys; the worker ends with its parent. */
async function startAsWorker(
  config: GatewayConfig,
  telemetry: Telemetry,
  signals: StopSignals,
): Promise<void> {
  process.on("disconnect", () => signals.receive("the end of the parent"));
  const url = config.databaseUrl;
  if (url === undefined || process.send === undefined) {
    throw new Error("only a parent process starts a worker; use --workers");
  }
  const database = foreignDatabase(url);
  const serving = loadServing();
  const { session, instance } = await connect(config, database, telemetry, signals);
  const { keyring } = await openMasterKeys(config, session);
  void session.end({ timeout: SESSION_END_SECONDS });
  const { serve } = await serving;
  const onStopFailed = fail;
  shareMetrics(telemetry);
  const parts = { config, database, instance, keyring, telemetry, signals };
  await serve({ ...parts, sharesPort: true, onStopFailed });
  process.send(READY_MESSAGE);
  reportAlive();
}

await start().catch(fail);
