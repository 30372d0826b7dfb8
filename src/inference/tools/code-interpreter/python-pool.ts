import { type GatewayError, overloaded } from "../../../lib/errors.ts";
import { allButOne, FairSemaphore } from "../../../lib/fair-share.ts";
import { type PythonBounds, PythonProcess, PythonStartError } from "./python-process.ts";

export interface PoolBounds extends PythonBounds {
  readonly maxProcesses: number;
  /** For a process where all are claimed. */
  readonly maxWaitMs?: number;
}

const MAX_WAITING = 64;
const MAX_WAIT_MS = 20_000;
/** Claims further processes where the last one could not start. */
const FAULT_MS = 30_000;
/** A spare process that no response has claimed for so long is ended. */
const MAX_SPARE_MS = 600_000;
/** A process whose response has run nothing for so long is ended; its next run gets a new one. */
const MAX_IDLE_MS = 60_000;
/** The same where another response waits for a process. */
const MAX_IDLE_WITH_WAITING_MS = 2_000;
const SWEEP_MS = 500;
const RETRY_AFTER_SECONDS = 5;

/**
 * The processes of Python interpreters: a bounded number, each claimed by one response; organizations share them.
 * The first claim starts one, and from then on one more waits for the next claim, if there is room for it.
 */
export class PythonPool {
  readonly #bounds: PoolBounds;
  /** All that live: the spare one, those claimed, and those killed that are not gone yet. */
  readonly #all = new Set<PythonProcess>();
  /** A claim holds its place until its process has exited. */
  readonly #claims: FairSemaphore;
  #spare: { readonly process: PythonProcess; readonly sinceMs: number } | undefined;
  #fault: { readonly error: PythonStartError; readonly atMs: number } | undefined;
  #sweeper: ReturnType<typeof setInterval> | undefined;
  #isClosed = false;

  constructor(bounds: PoolBounds) {
    this.#bounds = bounds;
    this.#claims = createClaimSemaphore(bounds);
  }

  /** Processes that live. */
  get size(): number {
    return this.#all.size;
  }

  /**
   * A process that is ready, for the caller to kill. Rejects with 503 if none is free in time, with
   * PythonStartError, and with the reason of the signal.
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
    // A spare that ends without a claim is not replaced before the next one. Claims that wait come first.
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

  /** Ends processes that stand idle: all after a time, and the longest idle ones earlier where responses wait. */
  #sweep(): void {
    const nowMs = performance.now();
    const spare = this.#spare;
    if (spare !== undefined && nowMs - spare.sinceMs > MAX_SPARE_MS) spare.process.kill();
    const idle = [...this.#all]
      .flatMap((process) => {
        const { idleSinceMs, isAlive } = process;
        return isAlive && idleSinceMs !== undefined ? [{ process, ms: nowMs - idleSinceMs }] : [];
      })
      .sort((one, other) => other.ms - one.ms);
    for (const [index, { process, ms }] of idle.entries()) {
      const isWanted = index < this.#claims.waiting && ms > MAX_IDLE_WITH_WAITING_MS;
      if (isWanted || ms > MAX_IDLE_MS) process.kill();
    }
  }
}

/** Bounds the interpreters that are claimed. */
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
