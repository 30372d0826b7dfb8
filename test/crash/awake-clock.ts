const TICK_MS = 20;
/** A longer gap between two ticks is a machine, or a process, that stood still. */
const LONGEST_TICK_MS = 200;

/** Time in which this process was running: what it spent frozen does not count. */
export class AwakeClock {
  #awakeMs = 0;
  #lastTickMs = performance.now();
  readonly #timer = setInterval(() => this.#tick(), TICK_MS);

  nowMs(): number {
    this.#tick();
    return this.#awakeMs;
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #tick(): void {
    const nowMs = performance.now();
    this.#awakeMs += Math.min(nowMs - this.#lastTickMs, LONGEST_TICK_MS);
    this.#lastTickMs = nowMs;
  }
}
