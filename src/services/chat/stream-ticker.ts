import type { Clock } from "../../lib/clock.ts";

export interface Ticking {
  /** Called about every TICK_MS while registered. */
  tick(nowMs: number): void;
  /** The process ends, and with it the stream: it tells its client, and is charged. */
  cutShort(): void;
  /** The process ends at once: notes what was not delivered. */
  noteUndelivered(): void;
}

const TICK_MS = 50;

/** One timer for all running streams: keepalives, timeouts and checkpoints are due to the tick. */
export class StreamTicker {
  readonly #clock: Clock;
  readonly #streams = new Set<Ticking>();
  #isRunning = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#streams.size;
  }

  add(stream: Ticking): void {
    this.#streams.add(stream);
    if (!this.#isRunning) this.#schedule();
  }

  remove(stream: Ticking): void {
    this.#streams.delete(stream);
  }

  /** Ends all streams that are open, each with an error in the stream. */
  cutShort(): void {
    for (const stream of [...this.#streams]) stream.cutShort();
  }

  noteUndelivered(): void {
    for (const stream of this.#streams) stream.noteUndelivered();
  }

  #schedule(): void {
    this.#isRunning = true;
    this.#clock.after(TICK_MS, () => {
      const nowMs = this.#clock.nowMs();
      for (const stream of this.#streams) stream.tick(nowMs);
      this.#isRunning = false;
      if (this.#streams.size > 0) this.#schedule();
    });
  }
}
