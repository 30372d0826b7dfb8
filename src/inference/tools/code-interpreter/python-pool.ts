import { type GatewayError, overloaded } from "../../../lib/errors.ts";
import { allButOne, FairSemaphore } from "../../../lib/fair-share.ts";
import { type PythonBounds, PythonProcess, PythonStartError } from "./python-process.ts";

export interface PoolBounds extends PythonBounds {
  readonly maxProcesses: number;
  /** Maximum wait in milliseconds if all processes are claimed. */
  readonly maxWaitMs?: number;
}

const MAX_WAITING = 64;
const MAX_WAIT_MS = 20_000;
/** Milliseconds after a failed start in which no process is claimed. */
const FAULT_MS = 30_000;
/** Milliseconds after which an unclaimed spare process is ended. */
const MAX_SPARE_MS = 600_000;
/** Milliseconds without a run after which a response's process is ended. Its next run gets a new process. */
const MAX_IDLE_MS = 60_000;
/** Milliseconds without a run after which a process is ended if another response waits for one. */
const MAX_IDLE_WITH_WAITING_MS = 2_000;
const SWEEP_MS = 500;
const RETRY_AFTER_SECONDS = 5;

/**
 * A bounded pool of Python processes that organizations share. Each process is claimed by one response. After
 * the first claim, one spare process is kept ready if the limit allows it.
 */
export class PythonPool {
  readonly #bounds: PoolBounds;
  /** All live processes: the spare one, claimed ones, and killed ones that have not exited yet. */
  readonly #all = new Set<PythonProcess>();
  /** The claims of processes. A claim is released when its process has exited. */
  readonly #claims: FairSemaphore;
  #spare: { readonly process: PythonProcess; readonly sinceMs: number } | undefined;
  #fault: { readonly error: PythonStartError; readonly atMs: number } | undefined;
  #sweeper: ReturnType<typeof setInterval> | undefined;
  #isClosed = false;

  constructor(bounds: PoolBounds) {
    this.#bounds = bounds;
    this.#claims = createClaimSemaphore(bounds);
  }

  /** Number of live processes. */
  get size(): number {
    return this.#all.size;
  }

  /**
   * Returns a ready process, which the caller must kill. Rejects with 503 if no process becomes free in time,
   * with PythonStartError, and with the signal's reason.
   */
  async claim(owner: string, signal: AbortSignal): Promise<PythonProcess> {
    signal.throwIfAborted();
    const fault = this.#fault;
    if (fault !== undefined && performance.now() - fault.atMs < FAULT_MS) throw fault.error;
    const claimed = await this.#claimOne(owner, signal);
    const kill = (): void => claimed.kill();
    signal.addEventListener("abort", kill, { once: true });
    if (signal.aborted) kill();
    try {
      await claimed.ready;
      this.#fault = undefined;
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof PythonStartError) this.#fault = { error, atMs: performance.now() };
      throw error;
    } finally {
      signal.removeEventListener("abort", kill);
    }
    this.#fillSpare();
    return claimed;
  }

  close(): void {
    this.#isClosed = true;
    for (const process of this.#all) process.kill();
  }

  async #claimOne(owner: string, signal: AbortSignal): Promise<PythonProcess> {
    const release = await this.#claims.acquire(owner, signal);
    try {
      if (this.#isClosed) throw busy();
      const claimed = this.#takeSpare() ?? this.#launch();
      void claimed.exited.then(release);
      return claimed;
    } catch (error) {
      release();
      throw error;
    }
  }

  #takeSpare(): PythonProcess | undefined {
    const spare = this.#spare?.process;
    this.#spare = undefined;
    return spare?.isAlive === true ? spare : undefined;
  }

  #launch(): PythonProcess {
    const launched = new PythonProcess(this.#bounds);
    this.#all.add(launched);
    this.#sweeper ??= setInterval(() => this.#sweep(), SWEEP_MS);
    this.#sweeper.unref();
    launched.exited.then(() => this.#onExit(launched));
    return launched;
  }

  #onExit(process: PythonProcess): void {
    this.#all.delete(process);
    const wasSpare = this.#spare?.process === process;
    if (wasSpare) this.#spare = undefined;
    // A spare process that ends unclaimed is replaced at the next claim. Waiting claims have priority.
    if (!wasSpare && this.#claims.waiting === 0) this.#fillSpare();
    if (this.#all.size > 0) return;
    clearInterval(this.#sweeper);
    this.#sweeper = undefined;
  }

  #fillSpare(): void {
    if (this.#isClosed || this.#spare !== undefined || this.#fault !== undefined) return;
    if (this.#all.size >= this.#bounds.maxProcesses) return;
    this.#spare = { process: this.#launch(), sinceMs: performance.now() };
  }

  /** Ends idle processes: all after a time, and the longest idle ones earlier if responses wait. */
  #sweep(): void {
    const nowMs = performance.now();
    const spare = this.#spare;
    if (spare !== undefined && nowMs - spare.sinceMs > MAX_SPARE_MS) spare.process.kill();
    const idle = [...this.#all]
      .flatMap((process) => {
        const { idleSinceMs, isAlive } = process;
        return isAlive && idleSinceMs !== undefined ? [{ process, ms: nowMs - idleSinceMs }] : [];
      })
      .sort((left, right) => right.ms - left.ms);
    for (const [index, { process, ms }] of idle.entries()) {
      const isWanted = index < this.#claims.waiting && ms > MAX_IDLE_WITH_WAITING_MS;
      if (isWanted || ms > MAX_IDLE_MS) process.kill();
    }
  }
}

/** Returns the semaphore that bounds the claimed processes. */
export function createClaimSemaphore({
  maxProcesses,
  maxWaitMs = MAX_WAIT_MS,
}: Pick<PoolBounds, "maxProcesses" | "maxWaitMs">): FairSemaphore {
  return new FairSemaphore({
    most: maxProcesses,
    mostOfOne: allButOne(maxProcesses),
    maxWaiting: MAX_WAITING,
    maxWaitingOfOne: MAX_WAITING / 2,
    maxWaitMs,
    refusal: busy,
  });
}

function busy(): GatewayError {
  return overloaded("All Python interpreters are busy. Try again later.", RETRY_AFTER_SECONDS);
}
