/** Admissions are counted in pieces of this length, and a piece counts until the last one of it has left the window. */
export const BUCKET_MS = 100;

/** The length of every window but those of tests. */
export const WINDOW_MS = 60_000;

/** How many buckets may count: one more than fill a window, so that it admits late rather than too much. */
export function bucketsOf(windowMs: number): number {
  return windowMs / BUCKET_MS + 1;
}

/** The admissions of one key, by the bucket in which they happened. Buckets are numbered by their times. */
export class SlidingWindow {
  /** Windows stand in the order of these in their table. */
  usedBucket: number;
  readonly #buckets: number;
  readonly #counts = new Map<number, number>();
  /** When the last admission of each bucket leaves the window: in the millisecond behind its end. */
  readonly #leaveMs = new Map<number, number>();
  #total = 0;

  constructor(buckets: number, usedBucket: number) {
    this.#buckets = buckets;
    this.usedBucket = usedBucket;
  }

  get total(): number {
    return this.#total;
  }

  /** Pairs of a bucket and its admissions, in the order of time. */
  get counts(): ReadonlyMap<number, number> {
    return this.#counts;
  }

  /** An admission now, which is not before any that was added. */
  add(nowMs: number): void {
    const bucket = Math.floor(nowMs / BUCKET_MS);
    this.#counts.set(bucket, (this.#counts.get(bucket) ?? 0) + 1);
    this.#leaveMs.set(bucket, Math.floor(nowMs) + (this.#buckets - 1) * BUCKET_MS + 1);
    this.#total++;
  }

  /** Buckets stand in the order of their times, so the expired ones stand first. */
  expire(nowMs: number): void {
    for (const [old, admitted] of this.#counts) {
      if (this.#leaveMs.get(old)! > nowMs) return;
      this.#counts.delete(old);
      this.#leaveMs.delete(old);
      this.#total -= admitted;
    }
  }

  /** When the first `count` admissions will have left the window. */
  leavesMs(count: number): number | undefined {
    let left = count;
    for (const [bucket, admitted] of this.#counts) {
      left -= admitted;
      if (left <= 0) return this.#leaveMs.get(bucket);
    }
    return undefined;
  }
}
