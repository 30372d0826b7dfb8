import type { ListNode } from "../../lib/age-order.ts";

/** Admissions are counted in pieces of this length, and a piece counts until the last one of it has left the window. */
export const BUCKET_MS = 100;

/** The length of every window but those of tests. */
export const WINDOW_MS = 60_000;

/** How many buckets may count: one more than fill a window, so that it admits late rather than too much. */
export function bucketsOf(windowMs: number): number {
  return windowMs / BUCKET_MS + 1;
}

/** Places of a list that have to be empty before the rest is moved to its front. */
const MIN_MOVED = 64;

/**
 * The admissions of one key, by the bucket in which they happened. Buckets are numbered by their times.
 * A process may hold 100,000 of these, most with a bucket or two, so all of it is one list of numbers.
 */
export class SlidingWindow implements ListNode<SlidingWindow> {
  readonly key: string;
  /** Windows stand in the order of these in their table. */
  usedBucket: number;
  older: SlidingWindow | undefined;
  newer: SlidingWindow | undefined;
  readonly #buckets: number;
  /** Of each bucket, in the order of time, two numbers: the millisecond of its last admission, and how many it has. */
  readonly #admissions: number[] = [];
  /** Where the oldest bucket stands; what is before it has left the window. */
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

  /** The bucket of the last admission; undefined where there is none. */
  get newestBucket(): number | undefined {
    const at = this.#admissions.length - 2;
    return at < this.#first ? undefined : bucketOf(this.#admissions[at]!);
  }

  /** Admissions by bucket, in the order of time. */
  counts(): Map<number, number> {
    const counts = new Map<number, number>();
    for (let at = this.#first; at < this.#admissions.length; at += 2) {
      counts.set(bucketOf(this.#admissions[at]!), this.#admissions[at + 1]!);
    }
    return counts;
  }

  /** Admissions now, which is not before any that were added. */
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

  /** Changes what a bucket counts, as long as it is in the window. */
  change(bucket: number, by: number): void {
    const admissions = this.#admissions;
    for (let at = admissions.length - 2; at >= this.#first; at -= 2) {
      const other = bucketOf(admissions[at]!);
      if (other > bucket) continue;
      if (other < bucket) return;
      const changed = Math.max(by, -admissions[at + 1]!);
      admissions[at + 1]! += changed;
      this.#total += changed;
      return;
    }
  }

  /** Forgets the admissions that have left the window. */
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

  /** When the first `count` admissions will have left the window. */
  leavesMs(count: number): number | undefined {
    let left = count;
    for (let at = this.#first; at < this.#admissions.length; at += 2) {
      left -= this.#admissions[at + 1]!;
      if (left <= 0) return this.#leaveMs(at);
    }
    return undefined;
  }

  /** When the last admission of a bucket leaves the window: in the millisecond behind its end. */
  #leaveMs(at: number): number {
    return this.#admissions[at]! + (this.#buckets - 1) * BUCKET_MS + 1;
  }
}

function bucketOf(ms: number): number {
  return Math.floor(ms / BUCKET_MS);
}
