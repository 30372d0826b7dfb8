import { IntrusiveList, type ListNode } from "../../../lib/age-order.ts";
import type { Clock } from "../../../lib/clock.ts";

/** A running stream. Its neighbours are the ticker's to set. */
export interface Ticking extends ListNode<Ticking> {
  /** Called about every TICK_MS while registered. */
  tick(nowMs: number): void;
  /** The process ends, and with it the stream: it tells its client, and is charged. */
  abort(): void;
  /** The process ends at once: notes what was not delivered. */
  recordUndelivered(): void;
}

const TICK_MS = 50;

/** One timer for all running streams: keepalives, timeouts and checkpoints are due to the tick. */
export class StreamTicker {
  readonly #clock: Clock;
  readonly #streams = new IntrusiveList<Ticking>();
  #isRunning = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#streams.length;
  }

  add(stream: Ticking): void {
    this.#streams.add(stream);
    if (!this.#isRunning) this.#schedule();
  }

  remove(stream: Ticking): void {
    this.#streams.remove(stream);
  }

  /** Ends all streams that are open, each with an error in the stream. */
  abortAll(): void {
    for (const stream of this.#streams.list()) stream.abort();
  }

  recordUndelivered(): void {
    for (const stream of this.#streams.list()) stream.recordUndelivered();
  }

  #schedule(): void {
    this.#isRunning = true;
    this.#clock.after(TICK_MS, () => {
      const nowMs = this.#clock.nowMs();
      for (const stream of this.#streams.list()) {
        if (this.#streams.has(stream)) stream.tick(nowMs);
      }
      this.#isRunning = false;
      if (this.#streams.length > 0) this.#schedule();
    });
  }
}
