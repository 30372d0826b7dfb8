/** What a worker says to its parent while its event loop turns. */
export const ALIVE_MESSAGE = "alive";
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
 * they live. A parent that stood still itself has not heard of anybody, and begins anew.
 */
export class WorkerWatch<Worker> {
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
