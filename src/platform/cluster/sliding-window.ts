import type { ListNode } from "../../lib/intrusive-list.ts";

/**
 * Length of a bucket in milliseconds. A bucket counts until its last admission has left the window.
 */
export const BUCKET_MS = 100;

/** Length of a window in milliseconds, except in tests. */
export const WINDOW_MS = 60_000;

/**
 * Returns the number of buckets that can count: one more than fill a window, so that the window
 * admits late rather than too much.
 */
export function bucketsOf(windowMs: number): number {
  return windowMs / BUCKET_MS + 1;
}

/** Unused elements at the front of a list before the rest is moved to the front. */
const MIN_MOVED = 64;

/**
 * The admissions of one key, by the bucket in which they happened. Buckets are numbered by their
 * times. A process can hold 100,000 of these windows, most with one or two buckets, so each has a
 * single list of numbers.
 */
export class SlidingWindow implements ListNode<SlidingWindow> {
  readonly key: string;
  /** The bucket of the last recorded use, by which the table of windows is ordered. */
  usedBucket: number;
  older: SlidingWindow | undefined;
  newer: SlidingWindow | undefined;
  readonly #buckets: number;
  /**
   * Two numbers for each bucket, oldest first: the millisecond of its last admission, and its
   * count.
   */
  readonly #admissions: number[] = [];
  /** Index of the oldest bucket. The elements in front of it have left the window. */
  #first = 0;
  #total = 0;

  constructor(key: string, buckets: number, usedBucket: number) {
    this.key = key;
    this.#buckets = buckets;
    this.usedBucket = usedBucket;
  }

  get total(): number {
    return this.#total;
  }

  /** The bucket of the last admission. Undefined if the window is empty. */
  get newestBucket(): number | undefined {
    const at = this.#admissions.length - 2;
    return at < this.#first ? undefined : bucketOf(this.#admissions[at]!);
  }

  /** Returns the admissions by bucket, oldest first. */
  counts(): Map<number, number> {
    const counts = new Map<number, number>();
    for (let at = this.#first; at < this.#admissions.length; at += 2) {
      counts.set(bucketOf(this.#admissions[at]!), this.#admissions[at + 1]!);
    }
    return counts;
  }

  /** Adds admissions now. `nowMs` is not before any earlier addition. */
  add(nowMs: number, count = 1): void {
    const ms = Math.floor(nowMs);
    const admissions = this.#admissions;
    if (this.newestBucket === bucketOf(ms)) {
      admissions[admissions.length - 2] = ms;
      admissions[admissions.length - 1]! += count;
    } else {
      admissions.push(ms, count);
    }
    this.#total += count;
  }

  /** Changes the count of a bucket, as long as the bucket is in the window. */
  change(bucket: number, by: number): void {
    const admissions = this.#admissions;
    for (let at = admissions.length - 2; at >= this.#first; at -= 2) {
      const candidate = bucketOf(admissions[at]!);
      if (candidate > bucket) continue;
      if (candidate < bucket) return;
      const changed = Math.max(by, -admissions[at + 1]!);
      admissions[at + 1]! += changed;
      this.#total += changed;
      return;
    }
  }

  /** Removes the admissions that have left the window. */
  expire(nowMs: number): void {
    const admissions = this.#admissions;
    const { length } = admissions;
    let first = this.#first;
    while (first < length && this.#leaveMs(first) <= nowMs) {
      this.#total -= admissions[first + 1]!;
      first += 2;
    }
    if (first === length) {
      admissions.length = 0;
      first = 0;
    } else if (first >= MIN_MOVED && first * 2 >= length) {
      admissions.splice(0, first);
      first = 0;
    }
    this.#first = first;
  }

  /**
   * Returns the time at which the first `count` admissions will have left the window, or undefined
   * if the window has fewer.
   */
  leavesMs(count: number): number | undefined {
    let left = count;
    for (let at = this.#first; at < this.#admissions.length; at += 2) {
      left -= this.#admissions[at + 1]!;
      if (left <= 0) return this.#leaveMs(at);
    }
    return undefined;
  }

  /**
   * Returns the time at which the last admission of a bucket leaves the window, in the millisecond
   * after its end.
   */
  #leaveMs(at: number): number {
    return this.#admissions[at]! + (this.#buckets - 1) * BUCKET_MS + 1;
  }
}

function bucketOf(ms: number): number {
  return Math.floor(ms / BUCKET_MS);
}
