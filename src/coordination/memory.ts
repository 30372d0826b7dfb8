import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import type { RateDecision, RateWindows } from "./interface.ts";

const WINDOW_MS = 60_000;
const BUCKET_MS = 100;
/** One more than fill a window: the oldest bucket counts until all of it has left. */
const BUCKETS = WINDOW_MS / BUCKET_MS + 1;
/** Keys that can be limited at a time, which is within a window. */
const MAX_WINDOWS = 100_000;
/** Use is noted this often for each window, so that noting it costs next to nothing. */
const USE_RESOLUTION_BUCKETS = 10;
/** Windows that one sweep may remove. */
const SWEEP_PATIENCE = 1_000;

interface Window {
  readonly counts: Map<number, number>;
  total: number;
  /** Windows stand in the order of these. */
  usedBucket: number;
}

/**
 * Rate windows of a process that is the only one: a sliding window in buckets of 100 ms, rounded so that
 * it admits late rather than too much.
 */
export class MemoryRateWindows implements RateWindows {
  readonly #clock: Clock;
  readonly #maxWindows: number;
  readonly #windows = new Map<string, Window>();
  #lastMs = Number.NEGATIVE_INFINITY;
  #setBackMs = 0;
  #sweptBucket = 0;

  constructor(clock: Clock, maxWindows = MAX_WINDOWS) {
    this.#clock = clock;
    this.#maxWindows = maxWindows;
  }

  /** Keys whose windows are in memory. */
  get size(): number {
    return this.#windows.size;
  }

  /** Throws 503 where more keys than fit were used within a window. */
  take(key: string, limit: number): RateDecision {
    const nowMs = this.#steadyMs();
    const bucket = Math.floor(nowMs / BUCKET_MS);
    if (bucket !== this.#sweptBucket) this.#sweep(bucket, SWEEP_PATIENCE);
    const window = this.#window(key, bucket);
    expire(window, bucket);
    const isAdmitted = window.total < limit;
    if (isAdmitted) {
      window.counts.set(bucket, (window.counts.get(bucket) ?? 0) + 1);
      window.total++;
    }
    return {
      isAdmitted,
      limit,
      remaining: Math.max(0, limit - window.total),
      resetMs: (leavesMs(window, 1) ?? nowMs) - this.#setBackMs,
      retryAfterMs: isAdmitted
        ? 0
        : Math.max(1, (leavesMs(window, window.total - limit + 1) ?? nowMs) - nowMs),
    };
  }

  /** Time that stands still where the clock was set back, so that no admission is forgotten or kept too long. */
  #steadyMs(): number {
    const clockMs = this.#clock.nowMs();
    if (clockMs + this.#setBackMs < this.#lastMs) this.#setBackMs = this.#lastMs - clockMs;
    this.#lastMs = clockMs + this.#setBackMs;
    return this.#lastMs;
  }

  #window(key: string, bucket: number): Window {
    let window = this.#windows.get(key);
    if (window === undefined) {
      if (this.#windows.size >= this.#maxWindows) this.#makeRoom(bucket);
      window = { counts: new Map(), total: 0, usedBucket: bucket };
      this.#windows.set(key, window);
    } else if (bucket - window.usedBucket >= USE_RESOLUTION_BUCKETS) {
      window.usedBucket = bucket;
      this.#windows.delete(key);
      this.#windows.set(key, window);
    }
    return window;
  }

  #makeRoom(bucket: number): void {
    this.#sweep(bucket, this.#windows.size);
    if (this.#windows.size < this.#maxWindows) return;
    throw new GatewayError(
      "overloaded",
      "Too many API keys are in use at once. Try again shortly.",
      { retryAfterSeconds: 1 },
    );
  }

  /** Removes windows out of which every admission has left, the longest unused first. */
  #sweep(bucket: number, patience: number): void {
    this.#sweptBucket = bucket;
    let left = patience;
    for (const [key, { usedBucket }] of this.#windows) {
      if (bucket - usedBucket < BUCKETS + USE_RESOLUTION_BUCKETS || left-- === 0) return;
      this.#windows.delete(key);
    }
  }
}

/** When the first `count` admissions will have left the window. */
function leavesMs(window: Window, count: number): number | undefined {
  let left = count;
  for (const [bucket, admitted] of window.counts) {
    left -= admitted;
    if (left <= 0) return (bucket + BUCKETS) * BUCKET_MS;
  }
  return undefined;
}

/** Buckets stand in the order of their times, so the expired ones stand first. */
function expire(window: Window, bucket: number): void {
  for (const [old, admitted] of window.counts) {
    if (old > bucket - BUCKETS) return;
    window.counts.delete(old);
    window.total -= admitted;
  }
}
