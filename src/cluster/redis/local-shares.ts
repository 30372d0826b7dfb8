import type { Clock } from "../../lib/clock.ts";
import type { RateDecision } from "../interface.ts";
import { OwnAdmissions } from "./own-admissions.ts";

interface LocalSharesOptions {
  readonly clock: Clock;
  readonly windowMs: number;
  /** Ids of the instances that live, this one among them; known without Redis. */
  liveInstances(): readonly string[];
}

/** How long the others take at most to know of an instance that begins. */
const MEMBERSHIP_LAG_MS = 2_000;

/**
 * What an instance decides by itself: its share of each limit. One that has just begun knows nothing of what
 * its predecessor or the others admitted, so until it has seen a window pass, or Redis, its shares are nothing.
 */
export class LocalShares {
  readonly own: OwnAdmissions;
  readonly #options: LocalSharesOptions;
  readonly #live: LiveHistory;
  #ignorantUntilMs: number;
  #admitted = 0;

  constructor(options: LocalSharesOptions) {
    const { clock, windowMs } = options;
    this.#options = options;
    this.own = new OwnAdmissions(clock, windowMs);
    this.#live = new LiveHistory(windowMs);
    this.#ignorantUntilMs = clock.nowMs() + windowMs + MEMBERSHIP_LAG_MS;
  }

  /** Admissions since the start. */
  get admitted(): number {
    return this.#admitted;
  }

  /** Redis has counted for everyone, so from now on the own admissions are all that has to be known. */
  knowPast(): void {
    this.#ignorantUntilMs = Number.NEGATIVE_INFINITY;
  }

  /** The most instances that lived within a window. To be called often enough to see each of them. */
  countInstances(): number {
    const { clock, liveInstances } = this.#options;
    return this.#live.most(liveInstances().length, clock.nowMs());
  }

  remaining(key: string, limit: number): number {
    const live = this.countInstances();
    if (this.#options.clock.nowMs() < this.#ignorantUntilMs) return 0;
    return this.own.remainingShare(key, Math.max(1, Math.floor(limit / live)));
  }

  /** Throws 503 where more keys than fit were used within a window. */
  take(key: string, limit: number): RateDecision {
    const nowMs = this.#options.clock.nowMs();
    const live = this.countInstances();
    if (nowMs < this.#ignorantUntilMs) {
      const resetMs = this.#ignorantUntilMs;
      return { isAdmitted: false, limit, remaining: 0, resetMs, retryAfterMs: resetMs - nowMs };
    }
    const decision = this.own.takeShare(key, Math.max(1, Math.floor(limit / live)));
    if (decision.isAdmitted) this.#admitted++;
    return { ...decision, limit };
  }
}

/**
 * The most instances that lived at any time within a window. An instance that died a moment ago may have
 * admitted its share, so for a whole window the others go on leaving it to it.
 */
export class LiveHistory {
  readonly #windowMs: number;
  /** Falling counts, each with the time at which it was last seen. */
  readonly #peaks: { live: number; seenMs: number }[] = [];

  constructor(windowMs: number) {
    this.#windowMs = windowMs;
  }

  /** Notes how many live now, and returns the most. */
  most(live: number, nowMs: number): number {
    const peaks = this.#peaks;
    while (peaks.length > 0 && peaks.at(-1)!.live <= live) peaks.pop();
    peaks.push({ live, seenMs: nowMs });
    while (nowMs - peaks[0]!.seenMs > this.#windowMs) peaks.shift();
    return peaks[0]!.live;
  }
}
