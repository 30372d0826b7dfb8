import type { Clock } from "../../../lib/clock.ts";
import { IntrusiveList, type ListNode } from "../../../lib/intrusive-list.ts";

/** A running stream, as a node of the ticker's list. Only the ticker sets its neighbours. */
export interface Ticking extends ListNode<Ticking> {
  /** Called about every TICK_MS while registered. */
  tick(nowMs: number): void;
  /** Ends the stream because the process stops. The client gets an error, and the stream is charged. */
  abort(): void;
  /** Records what was not delivered, because the process ends immediately. */
  recordUndelivered(): void;
}

const TICK_MS = 50;

/** One timer for all running streams. Keepalives, timeouts and checkpoints are accurate to one tick. */
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

  /** Ends all open streams, each with an error in the stream. */
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
