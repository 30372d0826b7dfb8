import type { Clock } from "../../src/lib/clock.ts";
import type { Unit } from "./units.ts";

/** Longest delay of a charge, as a part of the duration of its call. */
const MAX_PART_OF_CALL = 0.01;
/** Longest delay of any charge, in milliseconds. */
const MAX_DELAY_MS = 5;
/** Shortest wait of a timer, in milliseconds. So the charges of calls under 100 ms are not delayed. */
const MIN_TIMER_MS = 1;

/**
 * Delays a commit, so that more charges share it: a commit costs the database as much as thirty charges. A commit of
 * charges begins 1 % of their shortest call after the commit before it, so no charge is delayed by more. Other units
 * are not delayed. Neither is a charge that waits alone: under low load nothing would join it.
 */
export class CommitDelay {
  readonly #clock: Clock;
  readonly #end: () => void;
  #cancel: (() => void) | undefined;
  #dueMs = 0;
  #lastCommitMs = Number.NEGATIVE_INFINITY;

  /** @param onEnd called at the end of each delay */
  constructor(clock: Clock, onEnd: () => void) {
    this.#clock = clock;
    this.#end = () => {
      this.#cancel = undefined;
      onEnd();
    };
  }

  /** Notes that a commit begins now. */
  noteCommit(): void {
    this.#lastCommitMs = this.#clock.nowMs();
  }

  /** Begins the delay of a commit of these units. Returns false if the commit must not wait. */
  begin(units: readonly Unit[]): boolean {
    if (units.length < 2) return false;
    let dueMs = Number.POSITIVE_INFINITY;
    for (const unit of units) dueMs = Math.min(dueMs, this.#dueMsOf(unit));
    if (dueMs - this.#clock.nowMs() < MIN_TIMER_MS) return false;
    this.#waitUntil(dueMs);
    return true;
  }

  /** Shortens the delay, if there is one, for a unit that joins it. Without a unit the delay ends. */
  shorten(unit?: Unit): void {
    if (this.#cancel === undefined) return;
    const dueMs = unit === undefined ? this.#lastCommitMs : this.#dueMsOf(unit);
    if (dueMs >= this.#dueMs) return;
    this.#cancel();
    this.#waitUntil(dueMs);
  }

  /** Returns the latest beginning of a commit with this unit. A unit that charges no call has no delay. */
  #dueMsOf({ settlements }: Unit): number {
    let delayMs = settlements.length > 0 ? MAX_DELAY_MS : 0;
    for (const { latencyMs } of settlements) {
      delayMs = Math.min(delayMs, latencyMs * MAX_PART_OF_CALL);
    }
    return this.#lastCommitMs + delayMs;
  }

  #waitUntil(dueMs: number): void {
    this.#dueMs = dueMs;
    const delayMs = dueMs - this.#clock.nowMs();
    if (delayMs >= MIN_TIMER_MS) {
      this.#cancel = this.#clock.after(delayMs, this.#end);
    } else {
      // The other units of this turn of the event loop join the commit.
      const immediate = setImmediate(this.#end);
      this.#cancel = () => clearImmediate(immediate);
    }
  }
}
