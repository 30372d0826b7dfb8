import type { DatabaseTarget } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";

export interface HeartbeatThreadOptions {
  readonly target: DatabaseTarget;
  readonly instance: InstanceIdentity;
  /**
   * Milliseconds of a blocked event loop after which the heartbeats stop, because the process
   * serves no requests.
   */
  readonly maxStallMs?: number;
  onError(error: unknown): void;
}

/** The message that starts the thread. */
export interface HeartbeatThreadStart {
  readonly url: string;
  readonly instanceId: string;
  readonly epoch: bigint;
  readonly maxStallMs: number;
  /** Two times of the process's `process.hrtime`, in nanoseconds, at the indexes BEAT and TICK. */
  readonly shared: SharedArrayBuffer;
  /**
   * The time at which this message was sent, by the same clock. The clock of a thread counts from
   * the start of the thread.
   */
  readonly sentNano: bigint;
}

/**
 * Index of the time at which the last answered heartbeat began. The thread writes it. The value 0
 * means none.
 */
export const BEAT = 0;
/** Index of the time of the last turn of the event loop. The process writes it. */
export const TICK = 1;

const MAX_STALL_MS = 20_000;
const TICK_MS = 500;
const RESTART_MS = 1_000;
const NANO_PER_MS = 1_000_000;

/**
 * Sends heartbeats from a thread with its own connection, in addition to the event loop's heartbeats.
 * An instance whose event loop is blocked for some seconds is alive and must not be declared dead.
 * The fence is the same:
 *
 * - the thread's heartbeats succeed only while the instance is alive in the database,
 * - they count from their start by the system's monotonic clock,
 * - a stopped process stops the thread too.
 */
export class HeartbeatThread {
  readonly #options: HeartbeatThreadOptions;
  readonly #shared = new SharedArrayBuffer(2 * BigInt64Array.BYTES_PER_ELEMENT);
  readonly #moments = new BigInt64Array(this.#shared);
  #worker: Worker | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;
  #isStopped = false;

  constructor(options: HeartbeatThreadOptions) {
    this.#options = options;
  }

  start(): void {
    const tick = (): void => void Atomics.store(this.#moments, TICK, process.hrtime.bigint());
    tick();
    this.#timer = setInterval(tick, TICK_MS);
    this.#timer.unref();
    this.#launch();
  }

  stop(): void {
    this.#isStopped = true;
    clearInterval(this.#timer);
    this.#worker?.terminate();
  }

  /**
   * Returns the milliseconds since the last answered heartbeat began, or infinity if none was
   * answered.
   */
  readonly ageMs = (): number => {
    const beganNano = Atomics.load(this.#moments, BEAT);
    if (beganNano === 0n) return Number.POSITIVE_INFINITY;
    return Number(process.hrtime.bigint() - beganNano) / NANO_PER_MS;
  };

  #launch(): void {
    const { target, instance, maxStallMs = MAX_STALL_MS, onError } = this.#options;
    const worker = new Worker(new URL("./heartbeat-thread-main.ts", import.meta.url).href);
    this.#worker = worker;
    (worker as Worker & { unref(): void }).unref();
    worker.onmessage = ({ data }: MessageEvent<string>) => onError(new Error(data));
    worker.addEventListener("error", (event) => onError(new Error(event.message)));
    // Until the next worker runs, only the event loop sends heartbeats.
    worker.addEventListener("close", () => {
      if (this.#isStopped || worker !== this.#worker) return;
      setTimeout(() => this.#isStopped || this.#launch(), RESTART_MS).unref();
    });
    worker.postMessage({
      url: target.url,
      instanceId: instance.id,
      epoch: instance.epoch,
      maxStallMs,
      shared: this.#shared,
      sentNano: process.hrtime.bigint(),
    } satisfies HeartbeatThreadStart);
  }
}
