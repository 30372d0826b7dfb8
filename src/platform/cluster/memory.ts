import type { PastAdmissions } from "../../../db/queries/recent-admissions.ts";
import type { Clock } from "../../lib/clock.ts";
import { overloaded } from "../../lib/errors.ts";
import { IntrusiveList } from "../../lib/intrusive-list.ts";
import {
  amountToTake,
  createRecount,
  ONE_ADMISSION,
  type RateDecision,
  type RateWindows,
  tokenWindow,
} from "./interface.ts";
import { BUCKET_MS, bucketsOf, SlidingWindow, WINDOW_MS } from "./sliding-window.ts";

/** Keys with a window at the same time, which means within the length of a window. */
const MAX_WINDOWS = 100_000;
/** Buckets between two updates of a window's last use, so that the updates cost almost nothing. */
const USE_RESOLUTION_BUCKETS = 10;
/** The maximum number of windows that one sweep removes. */
const MAX_SWEPT = 1_000;

/**
 * Rate windows of a single instance. Each is a sliding window with buckets of 100 ms. A bucket
 * counts until its last admission has left the window, so that the window admits late rather than
 * too much.
 */
export class MemoryRateWindows implements RateWindows {
  readonly #clock: Clock;
  readonly #maxWindows: number;
  readonly #buckets: number;
  readonly #windows = new Map<string, SlidingWindow>();
  readonly #order = new IntrusiveList<SlidingWindow>();
  #lastMs = Number.NEGATIVE_INFINITY;
  #setBackMs = 0;
  #sweptBucket = 0;

  constructor(clock: Clock, maxWindows = MAX_WINDOWS, windowMs = WINDOW_MS) {
    this.#clock = clock;
    this.#maxWindows = maxWindows;
    this.#buckets = bucketsOf(windowMs);
  }

  /** The number of keys with a window in memory. */
  get size(): number {
    return this.#windows.size;
  }

  /** Takes an amount or rejects. Throws 503 if more keys than fit were used within a window. */
  take(key: string, limit: number, amount = ONE_ADMISSION): RateDecision {
    const bucket = this.#tick();
    const window = this.#open(key, bucket);
    const admittedAmount = amountToTake(amount, limit - window.total);
    const isAdmitted = admittedAmount > 0;
    const nowMs = this.#lastMs;
    if (isAdmitted) window.add(nowMs, admittedAmount);
    return {
      isAdmitted,
      admittedAmount,
      limit,
      remaining: Math.max(0, limit - window.total),
      resetMs: (window.leavesMs(1) ?? nowMs) - this.#setBackMs,
      retryAfterMs: isAdmitted
        ? 0
        : Math.max(1, (window.leavesMs(window.total - limit + amount.least) ?? nowMs) - nowMs),
      recount:
        !isAdmitted || amount === ONE_ADMISSION
          ? undefined
          : createRecount(admittedAmount, (by) => window.change(bucket, by)),
    };
  }

  remaining(key: string, limit: number): number {
    this.#tick();
    const window = this.#windows.get(key);
    window?.expire(this.#lastMs);
    return Math.max(0, limit - (window?.total ?? 0));
  }

  /**
   * Counts the admissions of a predecessor, oldest first. To be called before anything else is
   * admitted. Ignores keys that do not fit.
   */
  restore(admissions: readonly PastAdmissions[]): void {
    const bucket = this.#tick();
    for (const { keyId, lastMs, count, tokens } of admissions) {
      this.#restoreWindow(keyId, bucket, lastMs, count);
      this.#restoreWindow(tokenWindow(keyId), bucket, lastMs, tokens);
    }
  }

  #restoreWindow(key: string, bucket: number, lastMs: number, count: number): void {
    if (count === 0) return;
    if (this.#windows.size >= this.#maxWindows && !this.#windows.has(key)) return;
    // Admissions in the future, by a predecessor's clock that was ahead, count from now on.
    this.#open(key, bucket).add(Math.min(lastMs, this.#lastMs), count);
  }

  /** Opens the window of a key, so that an admission can be counted. Throws 503 like `take`. */
  reserve(key: string): SlidingWindow {
    return this.#open(key, this.#tick());
  }

  /** Counts an admission that was decided elsewhere, whatever the limit. Returns its bucket. */
  note(window: SlidingWindow, admittedAmount: number): number {
    const bucket = this.#tick();
    window.add(this.#lastMs, admittedAmount);
    return bucket;
  }

  /** Yields the windows with admissions, by key. */
  *occupied(): Generator<readonly [string, SlidingWindow]> {
    this.#tick();
    for (const [key, window] of this.#windows) {
      window.expire(this.#lastMs);
      if (window.total > 0) yield [key, window];
    }
  }

  /** The current time as the number of a bucket. */
  get nowBucket(): number {
    return this.#tick();
  }

  #tick(): number {
    const bucket = Math.floor(this.#steadyMs() / BUCKET_MS);
    if (bucket !== this.#sweptBucket) this.#sweep(bucket, MAX_SWEPT);
    return bucket;
  }

  /**
   * Returns a time that does not run backwards if the clock was set back, so that no admission is
   * dropped too early or kept too long.
   */
  #steadyMs(): number {
    const clockMs = this.#clock.nowMs();
    if (clockMs + this.#setBackMs < this.#lastMs) this.#setBackMs = this.#lastMs - clockMs;
    this.#lastMs = clockMs + this.#setBackMs;
    return this.#lastMs;
  }

  #open(key: string, bucket: number): SlidingWindow {
    let window = this.#windows.get(key);
    if (window === undefined) {
      if (this.#windows.size >= this.#maxWindows) this.#makeRoom(bucket);
      window = new SlidingWindow(key, this.#buckets, bucket);
      this.#windows.set(key, window);
      this.#order.add(window);
    } else if (bucket - window.usedBucket >= USE_RESOLUTION_BUCKETS) {
      window.usedBucket = bucket;
      this.#order.renew(window);
    }
    window.expire(this.#lastMs);
    return window;
  }

  #makeRoom(bucket: number): void {
    this.#sweep(bucket, this.#windows.size);
    if (this.#windows.size < this.#maxWindows) return;
    throw overloaded("Too many API keys are in use at the same time. Try again shortly.");
  }

  /** Removes windows without admissions, the longest unused first. */
  #sweep(bucket: number, maxWindows: number): void {
    this.#sweptBucket = bucket;
    const unusedSince = bucket - this.#buckets - USE_RESOLUTION_BUCKETS;
    for (let left = maxWindows; left > 0; left--) {
      const window = this.#order.oldest;
      if (window === undefined || window.usedBucket > unusedSince) return;
      this.#windows.delete(window.key);
      this.#order.remove(window);
    }
  }
}
