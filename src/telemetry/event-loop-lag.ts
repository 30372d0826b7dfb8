const TICK_MS = 100;
/** A single pause, such as a garbage collection, is not a load. */
const TICKS = 5;

/** By how much the event loop has been late, at least, in each of the last ticks. */
export class EventLoopLag {
  readonly #lagsMs: number[] = Array(TICKS).fill(0);
  readonly #timer: ReturnType<typeof setInterval>;
  #dueMs: number;
  #next = 0;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#dueMs = nowMs() + TICK_MS;
    this.#timer = setInterval(() => this.tick(nowMs()), TICK_MS);
    this.#timer.unref();
  }

  get lagMs(): number {
    return Math.min(...this.#lagsMs);
  }

  tick(nowMs: number): void {
    this.#lagsMs[this.#next] = Math.max(0, nowMs - this.#dueMs);
    this.#next = (this.#next + 1) % TICKS;
    this.#dueMs = nowMs + TICK_MS;
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
