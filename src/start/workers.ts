import type { GatewayConfig } from "../config.ts";
import type { Telemetry } from "../telemetry/interface.ts";
import { announce } from "./announce.ts";
import { startDatabase } from "./database.ts";
import { createFirstKeys } from "./first-keys.ts";
import { openMasterKeys } from "./master-key.ts";
import { freePort } from "./serve.ts";
import { STOP_TIMEOUT_MS, type StopSignals } from "./stop.ts";
import { WorkerProcesses } from "./worker-processes.ts";

export interface WorkersOptions {
  readonly count: number;
  readonly script: string;
  readonly config: GatewayConfig;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly telemetry: Telemetry;
  readonly signals: StopSignals;
}

/**
 * Several instances on one machine that share a port. The parent serves nothing itself: it has the
 * database, the master key and the first keys ready before the workers start, starts again those that
 * die, and ends all in order.
 */
export async function startWorkers(options: WorkersOptions): Promise<void> {
  const { config, telemetry, signals } = options;
  if (config.redisUrl === undefined) {
    throw new Error("--workers starts several instances, which need REDIS_URL; set it");
  }
  const port = freePort(config);
  const database = await startDatabase(config, (message) => telemetry.log.info(message));
  let workers: WorkerProcesses | undefined;
  try {
    signals.assertNone();
    const masterKeys = await openMasterKeys(config, database.target);
    if (masterKeys.notice !== undefined) telemetry.log.warn(masterKeys.notice);
    const firstStart = await createFirstKeys(
      config,
      database.target,
      process.stdout.isTTY === true,
    );
    workers = new WorkerProcesses({
      count: options.count,
      script: options.script,
      environment: {
        ...options.environment,
        PORT: String(port),
        DATABASE_URL: database.target.url,
        ...masterKeys.environment,
      },
      stopTimeoutMs: config.shutdownGraceMs + STOP_TIMEOUT_MS,
      log: telemetry.log,
    });
    const running = workers;
    signals.handOver(async () => {
      database.announceStop();
      const isInOrder = await running.stop();
      await database.stop();
      await telemetry.close();
      process.exit(isInOrder ? 0 : 1);
    });
    await workers.start();
    announce(telemetry, config, port, firstStart);
  } catch (error) {
    await workers?.stop();
    await database.stop();
    throw error;
  }
}
