import type { Clock } from "../../lib/clock.ts";

export interface ClockWatchDependencies {
  readonly clock: Clock;
  /** By the database's clock, which all instances share. */
  readDatabaseTime(): Promise<number>;
  /** Told once, and again when it has changed by as much. Positive: this machine's clock is ahead. */
  onApart(aheadMs: number): void;
  onAgreed(): void;
}

const LOOK_MS = 30_000;
/** Clocks that are kept by the network differ by far less; receivers of webhooks allow 300 seconds. */
const MAX_APART_MS = 2_000;

/**
 * Whether this machine's clock agrees with the database's. Leases, order, due times and rate windows do
 * not depend on it; expiry of keys, days of budgets and the timestamps of webhook signatures do.
 */
export class ClockWatch {
  readonly #dependencies: ClockWatchDependencies;
  #aheadMs = 0;
  #toldMs = 0;
  #cancel = (): void => {};
  #isStopped = false;

  constructor(dependencies: ClockWatchDependencies) {
    this.#dependencies = dependencies;
  }

  /** How far this machine's clock is ahead at least, negative where it is behind; 0 within the tolerance of a look. */
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

  /** Never rejects: without the database there is nothing to compare with. */
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
    // It was read somewhere between: only what lies outside is certain.
    if (databaseMs < sentMs) this.#aheadMs = sentMs - databaseMs;
    else this.#aheadMs = Math.min(0, receivedMs - databaseMs);
    if (Math.abs(this.#aheadMs) <= MAX_APART_MS) {
      if (this.#toldMs !== 0) onAgreed();
      this.#toldMs = 0;
    } else if (Math.abs(this.#aheadMs - this.#toldMs) > MAX_APART_MS) {
      this.#toldMs = this.#aheadMs;
      onApart(this.#aheadMs);
    }
  }
}
