/** Admissions are counted in pieces of this length, and a piece counts until all of it has left the window. */
export const BUCKET_MS = 100;

/** The length of every window but those of tests. */
export const WINDOW_MS = 60_000;

/** How many buckets count: one more than fill a window, so that it admits late rather than too much. */
export function bucketsOf(windowMs: number): number {
  return windowMs / BUCKET_MS + 1;
}

/** The admissions of one key, by the bucket in which they happened. Buckets are numbered by their times. */
export class SlidingWindow {
  /** Windows stand in the order of these in their table. */
  usedBucket: number;
  readonly #buckets: number;
  readonly #counts = new Map<number, number>();
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

  /** `bucket` is not before any that was added. */
  add(bucket: number): void {
    this.#counts.set(bucket, (this.#counts.get(bucket) ?? 0) + 1);
    this.#total++;
  }

  /** Buckets stand in the order of their times, so the expired ones stand first. */
  expire(bucket: number): void {
    for (const [old, admitted] of this.#counts) {
      if (old > bucket - this.#buckets) return;
      this.#counts.delete(old);
      this.#total -= admitted;
    }
  }

  /** When the first `count` admissions will have left the window. */
  leavesMs(count: number): number | undefined {
    let left = count;
    for (const [bucket, admitted] of this.#counts) {
      left -= admitted;
      if (left <= 0) return (bucket + this.#buckets) * BUCKET_MS;
    }
    return undefined;
  }
}
