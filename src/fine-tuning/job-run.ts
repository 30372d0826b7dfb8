import type { Lease } from "../../actors/runtime/ownership/interface.ts";
import type { Clock } from "../lib/clock.ts";

/** Thrown where a job is not to be touched any more: it was lost, or this process stops. */
export class Abandoned extends Error {}

/** One job in the hands of this instance. */
export class JobRun {
  readonly lease: Lease;
  ended: Promise<void> = Promise.resolve();
  readonly #abandoned = new AbortController();
  #wake: (() => void) | undefined;
  /** Woken before it paused. */
  #isAwake = false;

  constructor(lease: Lease) {
    this.lease = lease;
  }

  get isAbandoned(): boolean {
    return this.#abandoned.signal.aborted;
  }

  abandon(): void {
    this.#abandoned.abort();
    this.wake();
  }

  wake(): void {
    this.#isAwake = true;
    this.#wake?.();
  }

  async pause(clock: Clock, ms: number): Promise<void> {
    if (!this.#isAwake) {
      await new Promise<void>((resolve) => {
        const cancel = clock.after(ms, resolve);
        this.#wake = () => {
          cancel();
          resolve();
        };
      });
    }
    this.#wake = undefined;
    this.#isAwake = false;
  }

  async call<Result>(
    clock: Clock,
    timeoutMs: number,
    call: (signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    const controller = new AbortController();
    const abort = () => controller.abort();
    const stopTimer = clock.after(timeoutMs, abort);
    this.#abandoned.signal.addEventListener("abort", abort, { once: true });
    try {
      return await call(controller.signal);
    } finally {
      stopTimer();
      this.#abandoned.signal.removeEventListener("abort", abort);
    }
  }
}
