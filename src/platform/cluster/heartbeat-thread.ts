import type { DatabaseTarget } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";

export interface HeartbeatThreadOptions {
  readonly target: DatabaseTarget;
  readonly instance: InstanceIdentity;
  /** The heartbeats end if the event loop has stood still for so long: such a process serves no request. */
  readonly maxStallMs?: number;
  onError(error: unknown): void;
}

/** What the thread is started with. */
export interface HeartbeatThreadStart {
  readonly url: string;
  readonly instanceId: string;
  readonly epoch: bigint;
  readonly maxStallMs: number;
  /** Two moments by the process's `process.hrtime`, in nanoseconds: see BEAT and TICK. */
  readonly shared: SharedArrayBuffer;
  /** When this was sent, by the same clock: that of a thread counts from the thread's own beginning. */
  readonly sentNano: bigint;
}

/** When the last heartbeat that was answered had begun; the thread writes it. 0: there was none. */
export const BEAT = 0;
/** When the event loop last turned; the process writes it. */
export const TICK = 1;

const MAX_STALL_MS = 20_000;
const TICK_MS = 500;
const RESTART_MS = 1_000;
const NANO_PER_MS = 1_000_000;

/**
 * Heartbeats from a thread and a connection of its own, beside those of the event loop: an instance whose
 * loop is held up for some seconds is alive, and is not to be declared dead for it. The fence stays what it
 * is: the thread writes only where the instance is still alive in the database, its heartbeats count from
 * their beginning by the system's monotonic clock, and a process that is stopped stops the thread too.
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

  /** Milliseconds since the last answered heartbeat began; infinite where there was none. */
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
    // Until another one runs, the heartbeats of the event loop are all there are.
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
