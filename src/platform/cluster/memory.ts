import type { PastAdmissions } from "../../../db/queries/recent-admissions.ts";
import { IntrusiveList } from "../../lib/age-order.ts";
import type { Clock } from "../../lib/clock.ts";
import { overloaded } from "../../lib/errors.ts";
import {
  ONE_ADMISSION,
  type RateDecision,
  type RateWindows,
  recounting,
  takenOf,
  tokenWindow,
} from "./interface.ts";
import { BUCKET_MS, bucketsOf, SlidingWindow, WINDOW_MS } from "./sliding-window.ts";

/** Keys that can be limited at a time, which is within a window. */
const MAX_WINDOWS = 100_000;
/** Use is noted this often for each window, so that noting it costs next to nothing. */
const USE_RESOLUTION_BUCKETS = 10;
/** Windows that one sweep may remove. */
const SWEEP_PATIENCE = 1_000;

/**
 * Rate windows of a process that is the only one: a sliding window in buckets of 100 ms, each of which
 * counts as long as its last admission does, so that it admits late rather than too much.
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

  /** Keys whose windows are in memory. */
  get size(): number {
    return this.#windows.size;
  }

  /** Throws 503 where more keys than fit were used within a window. */
  take(key: string, limit: number, amount = ONE_ADMISSION): RateDecision {
    const bucket = this.#tick();
    const window = this.#open(key, bucket);
    const taken = takenOf(amount, limit - window.total);
    const isAdmitted = taken > 0;
    const nowMs = this.#lastMs;
    if (isAdmitted) window.add(nowMs, taken);
    return {
      isAdmitted,
      taken,
      limit,
      remaining: Math.max(0, limit - window.total),
      resetMs: (window.leavesMs(1) ?? nowMs) - this.#setBackMs,
      retryAfterMs: isAdmitted
        ? 0
        : Math.max(1, (window.leavesMs(window.total - limit + amount.least) ?? nowMs) - nowMs),
      recount:
        !isAdmitted || amount === ONE_ADMISSION
          ? undefined
          : recounting(taken, (by) => window.change(bucket, by)),
    };
  }

  remaining(key: string, limit: number): number {
    this.#tick();
    const window = this.#windows.get(key);
    window?.expire(this.#lastMs);
    return Math.max(0, limit - (window?.total ?? 0));
  }

  /**
   * Counts what a predecessor has admitted: in the order of time, and before anything else is admitted. Keys
   * beyond those that fit are left out.
   */
  restore(admissions: readonly PastAdmissions[]): void {
    const bucket = this.#tick();
    for (const { keyId, lastMs, count, tokens } of admissions) {
      this.#restoreOne(keyId, bucket, lastMs, count);
      this.#restoreOne(tokenWindow(keyId), bucket, lastMs, tokens);
    }
  }

  #restoreOne(key: string, bucket: number, lastMs: number, count: number): void {
    if (count === 0) return;
    if (this.#windows.size >= this.#maxWindows && !this.#windows.has(key)) return;
    // What the predecessor's clock had ahead of this one counts from now on.
    this.#open(key, bucket).add(Math.min(lastMs, this.#lastMs), count);
  }

  /** Makes sure that an admission of the key can be noted. Throws 503 as `take` does. */
  reserve(key: string): SlidingWindow {
    return this.#open(key, this.#tick());
  }

  /** Counts an admission that was decided elsewhere, whatever the limit. Returns its bucket. */
  note(window: SlidingWindow, taken: number): number {
    const bucket = this.#tick();
    window.add(this.#lastMs, taken);
    return bucket;
  }

  /** The windows that hold admissions, by key. */
  *occupied(): Generator<readonly [string, SlidingWindow]> {
    this.#tick();
    for (const [key, window] of this.#windows) {
      window.expire(this.#lastMs);
      if (window.total > 0) yield [key, window];
    }
  }

  /** The time as the windows see it, in the numbers of their buckets. */
  get nowBucket(): number {
    return this.#tick();
  }

  #tick(): number {
    const bucket = Math.floor(this.#steadyMs() / BUCKET_MS);
    if (bucket !== this.#sweptBucket) this.#sweep(bucket, SWEEP_PATIENCE);
    return bucket;
  }

  /** Time that stands still where the clock was set back, so that no admission is forgotten or kept too long. */
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
    throw overloaded("Too many API keys are in use at once. Try again shortly.");
  }

  /** Removes windows out of which every admission has left, the longest unused first. */
  #sweep(bucket: number, patience: number): void {
    this.#sweptBucket = bucket;
    const unusedSince = bucket - this.#buckets - USE_RESOLUTION_BUCKETS;
    for (let left = patience; left > 0; left--) {
      const window = this.#order.oldest;
      if (window === undefined || window.usedBucket > unusedSince) return;
      this.#windows.delete(window.key);
      this.#order.remove(window);
    }
  }
}
