import { WORKER_FLAG } from "./command-line.ts";
import { WorkerMetrics } from "./worker-metrics.ts";

interface WorkerProcessesOptions {
  readonly count: number;
  /** The program that is to run as a worker. */
  readonly script: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** How long a worker may take to end after its stop signal. */
  readonly stopTimeoutMs: number;
  readonly log: { info(message: string): void; warn(message: string): void };
}

/** What a worker says to its parent once it listens. */
export const READY_MESSAGE = "ready";

const FIRST_RESTART_DELAY_MS = 100;
const LONGEST_RESTART_DELAY_MS = 10_000;
/** A worker that lived for so long died of something else than its start. */
const SETTLED_LIFE_MS = 10_000;

interface Place {
  child: Bun.Subprocess | undefined;
  isServing: boolean;
  restartDelayMs: number;
}

/**
 * Processes that share a port. Each place is: starting (its process runs and does not listen yet), serving,
 * or waiting to be started again after its process died, for longer each time it dies at once. One that
 * serves and stands still is ended, as if it had died. A worker that ends before all have served once ends
 * them all: what is wrong then is most likely wrong for all.
 */
export class WorkerProcesses {
  readonly #options: WorkerProcessesOptions;
  readonly #places: Place[];
  readonly #serving = Promise.withResolvers<void>();
  readonly #watch: WorkerWatch<Bun.Subprocess>;
  readonly #metrics = new WorkerMetrics();
  #readyCount = 0;
  #isStopping = false;
  #hasFailed = false;

  constructor(options: WorkerProcessesOptions) {
    this.#options = options;
    this.#places = Array.from({ length: options.count }, () => ({
      child: undefined,
      isServing: false,
      restartDelayMs: FIRST_RESTART_DELAY_MS,
    }));
    this.#serving.promise.catch(() => {});
    this.#watch = new WorkerWatch((child) => {
      options.log.warn(`worker ${child.pid} stands still and is killed`);
      child.kill("SIGKILL");
    });
  }

  /** Resolves when all serve. Rejects, with all ended, where one cannot. */
  start(): Promise<void> {
    for (const place of this.#places) this.#launch(place);
    return this.#serving.promise;
  }

  /** Lets all end in order. True where each did that served; one that was starting just ends. */
  async stop(): Promise<boolean> {
    this.#isStopping = true;
    this.#watch.stop();
    this.#metrics.stop();
    const running = this.#places.filter(({ child }) => child !== undefined);
    const wereServing = running.map(({ isServing }) => isServing);
    const children = running.map(({ child }) => child!);
    for (const child of children) child.kill("SIGTERM");
    const timer = setTimeout(() => {
      this.#options.log.warn("a worker did not end in time and is killed");
      for (const child of children) child.kill("SIGKILL");
    }, this.#options.stopTimeoutMs);
    const codes = await Promise.all(children.map((child) => child.exited));
    clearTimeout(timer);
    return codes.every((code, n) => code === 0 || !wereServing[n]);
  }

  #servingChildren(): Bun.Subprocess[] {
    return this.#places.flatMap(({ child, isServing }) => (child && isServing ? [child] : []));
  }

  #launch(place: Place): void {
    const { script, environment, log } = this.#options;
    const startedMs = performance.now();
    const child = Bun.spawn([process.execPath, "--no-env-file", script, WORKER_FLAG], {
      env: environment,
      stdio: ["ignore", "inherit", "inherit"],
      // Out of reach of Ctrl-C, which would be a second signal beside ours.
      detached: true,
      ipc: (message) => {
        // What it said last may come behind its end.
        if (place.child !== child) return;
        this.#watch.heard(child);
        if (this.#metrics.take(child, message, this.#servingChildren())) return;
        if (message === READY_MESSAGE) this.#noteServing(place);
      },
    });
    place.child = child;
    place.isServing = false;
    void child.exited.then((code) => {
      place.child = undefined;
      this.#watch.forget(child);
      this.#metrics.retire(child);
      if (this.#isStopping) return;
      if (this.#readyCount < this.#options.count) return this.#fail();
      if (performance.now() - startedMs > SETTLED_LIFE_MS) {
        place.restartDelayMs = FIRST_RESTART_DELAY_MS;
      }
      log.warn(
        `worker ${child.pid} ended (${child.signalCode ?? code}); another one starts in ${place.restartDelayMs} ms`,
      );
      setTimeout(() => {
        if (!this.#isStopping) this.#launch(place);
      }, place.restartDelayMs);
      place.restartDelayMs = Math.min(place.restartDelayMs * 2, LONGEST_RESTART_DELAY_MS);
    });
  }

  #noteServing(place: Place): void {
    place.isServing = true;
    this.#readyCount++;
    if (this.#readyCount === this.#options.count) this.#serving.resolve();
  }

  #fail(): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    void this.stop().then(() => this.#serving.reject(new Error("the workers could not start")));
  }
}

/** What a worker says to its parent while its event loop turns. */
const ALIVE_MESSAGE = "alive";
/** How often it says so. */
const ALIVE_MS = 1_000;
const LOOK_MS = 1_000;
/** Longer than an instance's lease: the others have declared a worker dead that stands still for so long. */
const MAX_SILENCE_MS = 10_000;

/** Lets the parent hear that this process does not stand still. */
export function tellAlive(): void {
  setInterval(() => {
    if (process.connected) process.send?.(ALIVE_MESSAGE);
  }, ALIVE_MS).unref();
}

/**
 * Notices workers that stand still, to which the kernel hands its share of the connections for as long as
 * they live. A parent that stood still itself has received no report, and starts over.
 */
class WorkerWatch<Worker> {
  readonly #heardAtMs = new Map<Worker, number>();
  readonly #timer: ReturnType<typeof setInterval>;
  #lookedAtMs = performance.now();

  constructor(onSilent: (worker: Worker) => void) {
    this.#timer = setInterval(() => this.#look(onSilent), LOOK_MS);
  }

  /** It is watched from the first time that it is heard. */
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
    const stoodStill = nowMs - this.#lookedAtMs > 2 * LOOK_MS;
    this.#lookedAtMs = nowMs;
    for (const [worker, heardAtMs] of this.#heardAtMs) {
      if (stoodStill) this.heard(worker);
      else if (nowMs - heardAtMs > MAX_SILENCE_MS) {
        this.forget(worker);
        onSilent(worker);
      }
    }
  }
}
