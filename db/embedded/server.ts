import { closeSync, existsSync, openSync, readFileSync, statSync } from "node:fs";
import { type ServerAddress, type ServerSettings, serverArguments } from "./cluster.ts";
import { rotateLog } from "./folders.ts";
import { EmbeddedPostgresError, type LaunchContext, spawnAs } from "./launch.ts";
import { processRuns, readPostmasterFile, waitUntil } from "./process-table.ts";

export interface RunningServer {
  readonly pid: number;
  readonly address: ServerAddress;
}

/** The server ended before it was ready. The message is the server's. */
export class ServerRefusedError extends EmbeddedPostgresError {}

/**
 * Replaying 1 GB of log after a crash takes minutes on a slow disk. A replay that is stopped starts from the beginning.
 */
const READY_TIMEOUT_MS = 600_000;
const FAST_SHUTDOWN_TIMEOUT_MS = 10_000;
const IMMEDIATE_SHUTDOWN_TIMEOUT_MS = 3_000;

/** Starts a server and waits until it accepts connections. */
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
  return fatal?.replace(/^.*?(FATAL|PANIC):\s+/, "") ?? lines.at(-1) ?? "it wrote no message";
}

/**
 * Stops a server: first fast (transactions are rolled back, then a checkpoint); after a while, or if it does not
 * answer, without the checkpoint; in the end by force. No committed data is lost.
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

/*
 * States of a server:
 *
 *   running    until its process ends, or it is asked to stop
 *   stopping   accepts no connections and waits for the open ones, which ours never close: after a moment the
 *              supervision ends it
 *   gone       the supervision starts it again until that succeeds: a full disk may have space again
 *
 * running → stopping → gone → running, and running → gone; no others. Clients see an outage of about a second, as with
 * any restart of a database.
 */

const CHECK_INTERVAL_MS = 1_000;
/**
 * A supervisor that stops the gateway together with its server has sent its signal within this time.
 */
const STOPPING_TIMEOUT_MS = 3_000;
/**
 * A server that has run for this long is restarted immediately, others after delays that double.
 */
const SETTLED_LIFE_MS = 2_000;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 10_000;
const END_TIMEOUT_MS = 5_000;

/** The functions of a server that its supervision calls. */
export interface SupervisedServer {
  isRunning(server: RunningServer): boolean;
  /** Throws if the state cannot be read. */
  isStopping(server: RunningServer): boolean;
  end(server: RunningServer): Promise<void>;
  /** Rejects if the server does not start. */
  restart(): Promise<RunningServer>;
}

/** Keeps a server running. Call its check about every second. */
export class ServerSupervision {
  readonly #supervised: SupervisedServer;
  readonly #log: (message: string) => void;
  #server: RunningServer | undefined;
  /** Time at which it was first seen running. */
  #startedMs: number | undefined;
  #stoppingSinceMs: number | undefined;
  #pauseMs = 0;
  #dueMs = 0;
  #work: Promise<void> | undefined;
  #isLeaving = false;

  constructor(
    first: RunningServer,
    supervised: SupervisedServer,
    log: (message: string) => void,
    nowMs: number,
  ) {
    this.#server = first;
    this.#supervised = supervised;
    this.#log = log;
    this.#startedMs = nowMs;
  }

  get isBusy(): boolean {
    return this.#work !== undefined;
  }

  /** The gateway stops too: a server that is asked to stop may wait for our connections. */
  announceStop(): void {
    this.#isLeaving = true;
  }

  look(nowMs: number): void {
    if (this.#work !== undefined) return;
    if (this.#server !== undefined && this.#supervised.isRunning(this.#server)) {
      this.#startedMs ??= nowMs;
      this.#lookAtStop(this.#server, nowMs);
      return;
    }
    if (this.#server !== undefined) this.#noteGone(nowMs);
    if (nowMs >= this.#dueMs) this.#begin(this.#revive(nowMs));
  }

  #lookAtStop(server: RunningServer, nowMs: number): void {
    if (this.#isLeaving || !this.#isStopping(server)) {
      this.#stoppingSinceMs = undefined;
      return;
    }
    this.#stoppingSinceMs ??= nowMs;
    if (nowMs - this.#stoppingSinceMs < STOPPING_TIMEOUT_MS) return;
    this.#log("the embedded Postgres received a stop and waits for its connections: ending it");
    this.#begin(this.#supervised.end(server));
  }

  /** If the state cannot be read now, it can be in a second. */
  #isStopping(server: RunningServer): boolean {
    try {
      return this.#supervised.isStopping(server);
    } catch {
      return false;
    }
  }

  #noteGone(nowMs: number): void {
    this.#server = undefined;
    this.#stoppingSinceMs = undefined;
    const isSettled = nowMs - (this.#startedMs ?? nowMs) >= SETTLED_LIFE_MS;
    this.#pauseMs = isSettled ? 0 : longerPause(this.#pauseMs);
    this.#dueMs = nowMs + this.#pauseMs;
    this.#log("the embedded Postgres has ended unexpectedly: restarting it");
  }

  async #revive(nowMs: number): Promise<void> {
    try {
      this.#server = await this.#supervised.restart();
      this.#startedMs = undefined;
    } catch (error) {
      this.#pauseMs = longerPause(this.#pauseMs);
      this.#dueMs = nowMs + this.#pauseMs;
      this.#log(`${(error as Error).message}; trying again in ${this.#pauseMs / 1_000} s`);
    }
  }

  #begin(work: Promise<void>): void {
    this.#work = work
      .catch((error: unknown) => this.#log((error as Error).message))
      .finally(() => {
        this.#work = undefined;
      });
  }
}

function longerPause(pauseMs: number): number {
  return pauseMs === 0 ? FIRST_PAUSE_MS : Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
}

interface Supervision {
  announceStop(): void;
  /** Ends the supervision. Waits a moment for a running restart. */
  end(): Promise<void>;
}

/** Supervises the server from now on. */
export function superviseServer(
  first: RunningServer,
  supervised: SupervisedServer,
  log: (message: string) => void,
): Supervision {
  const supervision = new ServerSupervision(first, supervised, log, performance.now());
  const timer = setInterval(() => supervision.look(performance.now()), CHECK_INTERVAL_MS);
  timer.unref();
  return {
    announceStop: () => supervision.announceStop(),
    async end() {
      clearInterval(timer);
      await waitUntil(() => !supervision.isBusy, END_TIMEOUT_MS);
    },
  };
}
