import type { Clock } from "../../lib/clock.ts";

export interface ClockWatchDependencies {
  readonly clock: Clock;
  /** Returns the time of the database, which all instances share, in milliseconds. */
  readDatabaseTime(): Promise<number>;
  /**
   * Called when the clocks differ by more than the tolerance, and again when the difference has
   * changed by as much. Positive if this machine's clock is ahead.
   */
  onApart(aheadMs: number): void;
  onAgreed(): void;
}

const LOOK_MS = 30_000;
/**
 * Tolerated difference in milliseconds. Clocks that are synchronized over the network differ by far
 * less; receivers of webhooks allow 300 seconds.
 */
const MAX_APART_MS = 2_000;

/**
 * Compares this machine's clock with the database's. Leases, ordering, due times and rate windows
 * do not depend on this machine's clock. The expiry of keys, the days of budgets and the timestamps
 * of webhook signatures do.
 */
export class ClockWatch {
  readonly #dependencies: ClockWatchDependencies;
  #aheadMs = 0;
  #reportedMs = 0;
  #cancel = (): void => {};
  #isStopped = false;

  constructor(dependencies: ClockWatchDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * The minimum by which this machine's clock is ahead, in milliseconds. Negative if it is slow; 0
   * if the difference is within the accuracy of a measurement.
   */
  get aheadMs(): number {
    return this.#aheadMs;
  }

  start(): void {
    void this.#round();
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel();
  }

  async #round(): Promise<void> {
    await this.look();
    if (!this.#isStopped) {
      this.#cancel = this.#dependencies.clock.after(LOOK_MS, () => void this.#round());
    }
  }

  /** Measures the difference. Never rejects: if the database is unavailable, it does nothing. */
  async look(): Promise<void> {
    const { clock, readDatabaseTime, onApart, onAgreed } = this.#dependencies;
    const sentMs = clock.nowMs();
    let databaseMs: number;
    try {
      databaseMs = await readDatabaseTime();
    } catch {
      return;
    }
    const receivedMs = clock.nowMs();
    // The database read its clock between sending and receiving, so only a difference beyond these
    // two times is certain.
    if (databaseMs < sentMs) this.#aheadMs = sentMs - databaseMs;
    else this.#aheadMs = Math.min(0, receivedMs - databaseMs);
    if (Math.abs(this.#aheadMs) <= MAX_APART_MS) {
      if (this.#reportedMs !== 0) onAgreed();
      this.#reportedMs = 0;
    } else if (Math.abs(this.#aheadMs - this.#reportedMs) > MAX_APART_MS) {
      this.#reportedMs = this.#aheadMs;
      onApart(this.#aheadMs);
    }
  }
}
