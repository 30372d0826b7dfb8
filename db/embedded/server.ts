import { closeSync, existsSync, openSync, readFileSync, statSync } from "node:fs";
import { type ServerAddress, type ServerSettings, serverArguments } from "./cluster.ts";
import { rotateLog } from "./folders.ts";
import { EmbeddedPostgresError, type LaunchContext, spawnAs } from "./launch.ts";
import { processRuns, readPostmasterFile, waitUntil } from "./process-table.ts";

export interface RunningServer {
  readonly pid: number;
  readonly address: ServerAddress;
}

/** The server ended before it was ready; the message is its own. */
export class ServerRefusedError extends EmbeddedPostgresError {}

/** Replaying 1 GB of log after a crash takes minutes on a slow disk; if cut short, it starts over. */
const READY_TIMEOUT_MS = 600_000;
const FAST_SHUTDOWN_TIMEOUT_MS = 10_000;
const IMMEDIATE_SHUTDOWN_TIMEOUT_MS = 3_000;

/** Starts a server and waits until it takes connections. */
export async function launchServer(
  context: LaunchContext,
  address: ServerAddress,
  settings: ServerSettings,
): Promise<RunningServer> {
  const { folders, binaries } = context;
  rotateLog(folders.log);
  const logFile = openSync(folders.log, "a", 0o600);
  const logStartBytes = statSync(folders.log).size;
  const command = [binaries.postgres, ...serverArguments(folders.cluster, address, settings)];
  const child = startChild(context, command, logFile);
  const ended = () => child.exitCode !== null || child.signalCode !== null;
  const ready = () => {
    const record = readPostmasterFile(folders.cluster);
    return record?.pid === child.pid && record.status === "ready";
  };
  await waitUntil(() => ended() || ready(), READY_TIMEOUT_MS);
  if (!ended() && ready()) return { pid: child.pid, address };
  if (!ended()) {
    await stopServer(child.pid, context);
    throw new EmbeddedPostgresError(
      `the embedded Postgres was not ready after ${READY_TIMEOUT_MS / 60_000} minutes: see ${folders.log}`,
    );
  }
  throw new ServerRefusedError(
    `the embedded Postgres did not start: ${reasonInLog(folders.log, logStartBytes)} (${folders.log})`,
  );
}

function startChild(context: LaunchContext, command: readonly string[], logFile: number) {
  try {
    const output = { stdout: logFile, stderr: logFile, detached: true };
    const child = spawnAs(context, command, output);
    child.unref();
    return child;
  } finally {
    closeSync(logFile);
  }
}

function reasonInLog(path: string, startBytes: number): string {
  const text = existsSync(path) ? readFileSync(path).subarray(startBytes).toString() : "";
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const fatal = lines.find((line) => /(FATAL|PANIC):/.test(line));
  return fatal?.replace(/^.*?(FATAL|PANIC):\s+/, "") ?? lines.at(-1) ?? "it said nothing";
}

/**
 * Shuts a server down: fast (transactions are rolled back, then a checkpoint); after a while, or where
 * it does not answer, without the checkpoint; at last by force. None loses what was committed.
 */
export async function stopServer(
  pid: number,
  context: LaunchContext,
  mode: "fast" | "immediate" = "fast",
): Promise<void> {
  const ended = () => !processRuns(pid);
  if (mode === "fast") {
    sendSignal(pid, "SIGINT", context);
    if (await waitUntil(ended, FAST_SHUTDOWN_TIMEOUT_MS)) return;
  }
  sendSignal(pid, "SIGQUIT", context);
  if (await waitUntil(ended, IMMEDIATE_SHUTDOWN_TIMEOUT_MS)) return;
  sendSignal(pid, "SIGKILL", context);
  await waitUntil(ended, IMMEDIATE_SHUTDOWN_TIMEOUT_MS);
}

function sendSignal(pid: number, signal: "SIGINT" | "SIGQUIT" | "SIGKILL", context: LaunchContext) {
  if (process.platform === "win32") {
    Bun.spawnSync([context.binaries.pgCtl, "kill", signal.slice(3), String(pid)]);
    return;
  }
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as { code?: unknown }).code !== "ESRCH") throw error;
  }
}
