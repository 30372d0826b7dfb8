import type { Clock } from "../lib/clock.ts";

const TICK_MS = 100;
/** Enough that a single pause, such as a garbage collection, does not count as load. */
const TICKS = 5;
const SAMPLE_EVERY_MS = 1000;
const SAMPLES_KEPT = 15;

/** The smallest of the recent delays of a 100 ms timer: how late the event loop was all the time, for load shedding. */
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

/** The longest of the recent delays of a one-second timer, for the metrics. */
export class LongestLag {
  readonly #clock: Clock;
  readonly #monotonicMs: () => number;
  readonly #lagsMs: number[] = [];
  #cancel: () => void = () => {};

  constructor(clock: Clock, monotonicMs: () => number) {
    this.#clock = clock;
    this.#monotonicMs = monotonicMs;
  }

  start(): void {
    const startedMs = this.#monotonicMs();
    this.#cancel = this.#clock.after(SAMPLE_EVERY_MS, () => {
      this.#lagsMs.push(Math.max(0, this.#monotonicMs() - startedMs - SAMPLE_EVERY_MS));
      if (this.#lagsMs.length > SAMPLES_KEPT) this.#lagsMs.shift();
      this.start();
    });
  }

  stop(): void {
    this.#cancel();
  }

  maxMs(): number {
    return Math.max(0, ...this.#lagsMs);
  }
}
