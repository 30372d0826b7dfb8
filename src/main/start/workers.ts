import type { GatewayConfig } from "../../platform/config.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import { asUnusable, openDatabase, prepareDatabase } from "./database.ts";
import { announce, createFirstKeys, terminalOf } from "./first-keys.ts";
import { openMasterKeys } from "./master-key.ts";
import { freePort } from "./port.ts";
import { STOP_TIMEOUT_MS, type StopSignals } from "./stop.ts";
import { WorkerMetrics } from "./worker-metrics.ts";

interface WorkersOptions {
  readonly count: number;
  readonly script: string;
  readonly config: GatewayConfig;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly telemetry: Telemetry;
  readonly signals: StopSignals;
}

/**
 * Runs several instances on one machine that share a port. The parent serves no requests: it prepares the database, the
 * master key and the first keys before the workers start, restarts workers that die, and stops all in order.
 */
export async function startWorkers(options: WorkersOptions): Promise<void> {
  const { config, telemetry, signals } = options;
  if (config.redisUrl === undefined) {
    throw new Error("--workers starts several instances, which need REDIS_URL");
  }
  const port = await freePort(config);
  const database = await openDatabase(config, telemetry.log);
  let workers: WorkerProcesses | undefined;
  try {
    const assertNotStopped = () => signals.assertNone();
    const { target } = database;
    const session = await prepareDatabase({ config, target, log: telemetry.log, assertNotStopped });
    assertNotStopped();
    const masterKeys = await openMasterKeys(config, session);
    if (masterKeys.notice !== undefined) telemetry.log.warn(masterKeys.notice);
    const firstStart = await createFirstKeys(config, session, terminalOf(telemetry));
    await session.end({ timeout: SESSION_END_SECONDS });
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
    signals.onStop(async () => {
      database.announceStop();
      const isInOrder = await running.stop();
      await database.stop();
      telemetry.log.info("stopped");
      await telemetry.close();
      process.exit(isInOrder ? 0 : 1);
    });
    await workers.start();
    announce(telemetry, config, port, firstStart);
  } catch (error) {
    await workers?.stop();
    await database.stop();
    throw asUnusable(config, error);
  }
}

const SESSION_END_SECONDS = 5;

/** The role of this process: a single instance, the parent of workers, or a worker. */
type Role =
  | { readonly kind: "single" }
  | { readonly kind: "parent"; readonly workers: number }
  | { readonly kind: "worker" };

const MAX_WORKERS = 64;
/** The parameter that a parent passes to its workers. */
const WORKER_FLAG = "--as-worker";

/** Reads the role from the command line. Throws an error of one line that names the accepted parameters. */
export function readRole(parameters: readonly string[]): Role {
  const [first, count, ...rest] = parameters.flatMap((one) => one.split(/(?<=^--workers)=/));
  if (first === undefined) return { kind: "single" };
  if (first === WORKER_FLAG && count === undefined) return { kind: "worker" };
  if (first !== "--workers" || rest.length > 0) {
    throw new Error(
      `unknown parameters: ${parameters.join(" ")}; start accepts --workers N, or no parameter`,
    );
  }
  const workers = /^[1-9]\d?$/.test(count ?? "") ? Number(count) : Number.NaN;
  if (!(workers <= MAX_WORKERS)) {
    throw new Error(
      `--workers is ${JSON.stringify(count ?? "")}, but must be a whole number from 1 to ${MAX_WORKERS}`,
    );
  }
  return { kind: "parent", workers };
}

interface WorkerProcessesOptions {
  readonly count: number;
  /** Path of the program that runs as a worker. */
  readonly script: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Milliseconds that a worker may take to end after its stop signal. */
  readonly stopTimeoutMs: number;
  readonly log: { info(message: string): void; warn(message: string): void };
}

/** The message of a worker that listens. */
export const READY_MESSAGE = "ready";

const FIRST_RESTART_DELAY_MS = 100;
const LONGEST_RESTART_DELAY_MS = 10_000;
/** Milliseconds after its start from which the death of a worker no longer counts as a failed start. */
const SETTLED_LIFE_MS = 10_000;

/** One of the `count` workers, with its current process. */
interface WorkerSlot {
  child: Bun.Subprocess | undefined;
  isServing: boolean;
  restartDelayMs: number;
}

/**
 * Processes that share a port. The states of each worker:
 *
 *   starting  its process runs and does not listen yet
 *   serving   its process listens
 *   waiting   its process died and will start again; the delay grows each time it dies soon after its start
 *
 * A serving worker that does not respond is killed and restarted. If a worker ends before all have served once, all
 * are stopped, because the cause most likely affects all.
 */
class WorkerProcesses {
  readonly #options: WorkerProcessesOptions;
  readonly #slots: WorkerSlot[];
  readonly #serving = Promise.withResolvers<void>();
  readonly #watch: WorkerWatch<Bun.Subprocess>;
  readonly #metrics = new WorkerMetrics();
  #readyCount = 0;
  #isStopping = false;
  #hasFailed = false;

  constructor(options: WorkerProcessesOptions) {
    this.#options = options;
    this.#slots = Array.from({ length: options.count }, () => ({
      child: undefined,
      isServing: false,
      restartDelayMs: FIRST_RESTART_DELAY_MS,
    }));
    this.#serving.promise.catch(() => {});
    this.#watch = new WorkerWatch((child) => {
      options.log.warn(`worker ${child.pid} does not respond; killing it`);
      child.kill("SIGKILL");
    });
  }

  /** Resolves when all workers serve. If one cannot, stops all and rejects. */
  start(): Promise<void> {
    for (const slot of this.#slots) this.#launch(slot);
    return this.#serving.promise;
  }

  /** Stops all workers. Returns true if each worker that was serving ended with code 0. */
  async stop(): Promise<boolean> {
    this.#isStopping = true;
    this.#watch.stop();
    this.#metrics.stop();
    const running = this.#slots.filter(({ child }) => child !== undefined);
    const wereServing = running.map(({ isServing }) => isServing);
    const children = running.map(({ child }) => child!);
    for (const child of children) child.kill("SIGTERM");
    const timer = setTimeout(() => {
      this.#options.log.warn("a worker did not stop in time; killing it");
      for (const child of children) child.kill("SIGKILL");
    }, this.#options.stopTimeoutMs);
    const codes = await Promise.all(children.map((child) => child.exited));
    clearTimeout(timer);
    return codes.every((code, n) => code === 0 || !wereServing[n]);
  }

  #servingChildren(): Bun.Subprocess[] {
    return this.#slots.flatMap(({ child, isServing }) => (child && isServing ? [child] : []));
  }

  #launch(slot: WorkerSlot): void {
    const { script, environment, log } = this.#options;
    const startedMs = performance.now();
    const child = Bun.spawn([process.execPath, "--no-env-file", script, WORKER_FLAG], {
      env: environment,
      stdio: ["ignore", "inherit", "inherit"],
      // Detached, because Ctrl-C would reach the worker as a second signal.
      detached: true,
      ipc: (message) => {
        // Its last message may arrive after its end.
        if (slot.child !== child) return;
        this.#watch.heard(child);
        if (this.#metrics.take(child, message, this.#servingChildren())) return;
        if (message === READY_MESSAGE) this.#noteServing(slot);
      },
    });
    slot.child = child;
    slot.isServing = false;
    void child.exited.then((code) => {
      slot.child = undefined;
      this.#watch.forget(child);
      this.#metrics.retire(child);
      if (this.#isStopping) return;
      if (this.#readyCount < this.#options.count) return this.#fail();
      if (performance.now() - startedMs > SETTLED_LIFE_MS) {
        slot.restartDelayMs = FIRST_RESTART_DELAY_MS;
      }
      log.warn(
        `worker ${child.pid} ended (${child.signalCode ?? code}); the next one starts in ${slot.restartDelayMs} ms`,
      );
      setTimeout(() => {
        if (!this.#isStopping) this.#launch(slot);
      }, slot.restartDelayMs);
      slot.restartDelayMs = Math.min(slot.restartDelayMs * 2, LONGEST_RESTART_DELAY_MS);
    });
  }

  #noteServing(slot: WorkerSlot): void {
    slot.isServing = true;
    this.#readyCount++;
    if (this.#readyCount === this.#options.count) this.#serving.resolve();
  }

  #fail(): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    void this.stop().then(() => this.#serving.reject(new Error("the workers could not start")));
  }
}

/** The message by which a worker shows that its event loop runs. */
const ALIVE_MESSAGE = "alive";
/** Milliseconds between these messages. */
const ALIVE_MS = 1_000;
const LOOK_MS = 1_000;
/**
 * Milliseconds without a message after which a worker is killed. Longer than a lease, so other instances have declared
 * it dead by then.
 */
const MAX_SILENCE_MS = 10_000;

/** Reports to the parent once a second that the event loop of this process runs. */
export function reportAlive(): void {
  setInterval(() => {
    if (process.connected) process.send?.(ALIVE_MESSAGE);
  }, ALIVE_MS).unref();
}

/**
 * Detects workers that do not respond. The kernel passes them their share of the connections as long as they live. A
 * parent that was blocked itself has read no reports, and starts to measure again.
 */
class WorkerWatch<Worker> {
  readonly #heardAtMs = new Map<Worker, number>();
  readonly #timer: ReturnType<typeof setInterval>;
  #lookedAtMs = performance.now();

  constructor(onSilent: (worker: Worker) => void) {
    this.#timer = setInterval(() => this.#look(onSilent), LOOK_MS);
  }

  /** Records a report of a worker. The first one starts the watch. */
  heard(worker: Worker): void {
    this.#heardAtMs.set(worker, performance.now());
  }

  forget(worker: Worker): void {
    this.#heardAtMs.delete(worker);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #look(onSilent: (worker: Worker) => void): void {
    const nowMs = performance.now();
    const wasBlocked = nowMs - this.#lookedAtMs > 2 * LOOK_MS;
    this.#lookedAtMs = nowMs;
    for (const [worker, heardAtMs] of this.#heardAtMs) {
      if (wasBlocked) this.heard(worker);
      else if (nowMs - heardAtMs > MAX_SILENCE_MS) {
        this.forget(worker);
        onSilent(worker);
      }
    }
  }
}
