import { drainMicrotasks } from "bun:jsc";
import type { Process } from "./process.ts";
import { SeededRandom } from "./seeded-random.ts";

interface Event {
  readonly atMs: number;
  readonly order: number;
  readonly label: string;
  readonly run: () => void;
  /** Whose it is: it waits while that is paused, and is lost with it. */
  readonly owner: Process | undefined;
  isCancelled: boolean;
}

const HASH_PRIME = 0x01000193;

/**
 * Everything that happens in one schedule, in one order: the next event is taken, run, and everything that
 * follows from it at once. Time passes only from event to event, and all chance comes from the seed.
 */
export class World {
  readonly random: SeededRandom;
  readonly trace: string[] = [];
  nowMs: number;
  steps = 0;
  /** Whose event is just being run. */
  current: Process | undefined;
  /** Of every event that was run, in order. */
  hash = 0x811c9dc5;
  readonly #keepsTrace: boolean;
  readonly #heap: Event[] = [];
  #order = 0;
  #ids = 0;

  constructor(seed: number, startMs: number, keepsTrace = false) {
    this.random = new SeededRandom(seed);
    this.nowMs = startMs;
    this.#keepsTrace = keepsTrace;
  }

  /** A number that no other call returns. */
  nextId(): number {
    return ++this.#ids;
  }

  /** Runs it later, as an event of `owner`. The returned function cancels it. */
  after(delayMs: number, label: string, run: () => void, owner?: Process): () => void {
    const event: Event = {
      atMs: this.nowMs + Math.max(0, delayMs),
      order: this.#order++,
      label,
      run,
      owner,
      isCancelled: false,
    };
    this.#push(event);
    return () => {
      event.isCancelled = true;
    };
  }

  /** Runs the next event. False where there is none before `untilMs`. */
  step(untilMs: number): boolean {
    for (;;) {
      const next = this.#heap[0];
      if (next === undefined || next.atMs > untilMs) {
        this.nowMs = Math.max(this.nowMs, untilMs);
        return false;
      }
      this.#pop();
      if (next.isCancelled || next.owner?.isGone) continue;
      this.nowMs = Math.max(this.nowMs, next.atMs);
      if (next.owner?.isPaused) {
        next.owner.whenResumed(() => this.after(0, next.label, next.run, next.owner));
        continue;
      }
      this.#run(next);
      return true;
    }
  }

  note(text: string): void {
    this.#mix(text);
    if (this.#keepsTrace) this.trace.push(`${this.nowMs.toFixed(3)} ${text}`);
  }

  #run({ label, run, owner }: Event): void {
    this.steps++;
    this.note(owner === undefined ? label : `${owner.name}: ${label}`);
    this.current = owner;
    run();
    drainMicrotasks();
    this.current = undefined;
  }

  #mix(text: string): void {
    let { hash } = this;
    for (let i = 0; i < text.length; i++) {
      hash = Math.imul(hash ^ text.charCodeAt(i), HASH_PRIME);
    }
    this.hash = Math.imul(hash ^ Math.floor(this.nowMs * 1_000), HASH_PRIME) >>> 0;
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (!isBefore(event, heap[above]!)) break;
      heap[at] = heap[above]!;
      at = above;
    }
    heap[at] = event;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop()!;
    if (heap.length === 0) return;
    let at = 0;
    for (;;) {
      let below = 2 * at + 1;
      if (below >= heap.length) break;
      if (below + 1 < heap.length && isBefore(heap[below + 1]!, heap[below]!)) below++;
      if (!isBefore(heap[below]!, last)) break;
      heap[at] = heap[below]!;
      at = below;
    }
    heap[at] = last;
  }
}

function isBefore(one: Event, other: Event): boolean {
  return one.atMs < other.atMs || (one.atMs === other.atMs && one.order < other.order);
}
