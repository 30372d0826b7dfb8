import type { Clock } from "../../../lib/clock.ts";
import { createRecount, ONE_ADMISSION, type RateAmount, type RateDecision } from "../interface.ts";
import { MemoryRateWindows } from "../memory.ts";
import { BUCKET_MS, type SlidingWindow } from "../sliding-window.ts";
import type { RedisBucketOf } from "./rate-scripts.ts";

interface LocalSharesOptions {
  readonly clock: Clock;
  readonly windowMs: number;
  /** Returns the ids of the live instances, including this one. Does not need Redis. */
  liveInstances(): readonly string[];
  readonly recountReported: RecountReported;
}

/** Milliseconds after which all other instances know a new instance. */
const MEMBERSHIP_LAG_MS = 2_000;

/**
 * Decides admissions without Redis: this instance has an equal share of each limit. A new instance
 * does not know what its predecessor or the others have admitted. Its shares are therefore 0 until
 * a window has passed or it has reached Redis.
 */
export class LocalShares {
  readonly admissions: InstanceAdmissions;
  readonly #options: LocalSharesOptions;
  readonly #live: LiveHistory;
  #initialWaitUntilMs: number;
  #admitted = 0;

  constructor(options: LocalSharesOptions) {
    const { clock, windowMs, recountReported } = options;
    this.#options = options;
    this.admissions = new InstanceAdmissions(clock, windowMs, recountReported);
    this.#live = new LiveHistory(windowMs);
    this.#initialWaitUntilMs = clock.nowMs() + windowMs + MEMBERSHIP_LAG_MS;
  }

  /** The number of admissions without Redis since the start. */
  get admitted(): number {
    return this.#admitted;
  }

  /**
   * Ends the time without shares. Called when Redis has counted for all instances, so that only the
   * admissions of this instance have to be known.
   */
  endInitialWait(): void {
    this.#initialWaitUntilMs = Number.NEGATIVE_INFINITY;
  }

  /**
   * Returns the maximum number of instances that lived within a window. Must be called often enough
   * to see each of them.
   */
  countInstances(): number {
    const { clock, liveInstances } = this.#options;
    return this.#live.most(liveInstances().length, clock.nowMs());
  }

  remaining(key: string, limit: number): number {
    const live = this.countInstances();
    if (this.#options.clock.nowMs() < this.#initialWaitUntilMs) return 0;
    return this.admissions.remainingShare(key, Math.max(1, Math.floor(limit / live)));
  }

  /** Takes an amount of the local share, or rejects. Throws 503 if more keys than fit were used within a window. */
  take(key: string, limit: number, amount: RateAmount): RateDecision {
    const nowMs = this.#options.clock.nowMs();
    const live = this.countInstances();
    if (nowMs < this.#initialWaitUntilMs) {
      const resetMs = this.#initialWaitUntilMs;
      const retryAfterMs = resetMs - nowMs;
      const rejection = { isAdmitted: false, admittedAmount: 0, remaining: 0, recount: undefined };
      return { ...rejection, limit, resetMs, retryAfterMs };
    }
    const decision = this.admissions.takeShare(key, Math.max(1, Math.floor(limit / live)), amount);
    if (decision.isAdmitted) this.#admitted++;
    return { ...decision, limit };
  }
}

/**
 * The maximum number of instances that lived at the same time within a window. An instance that has
 * just died may have admitted its share, so the others leave that share unused for a whole window.
 */
export class LiveHistory {
  readonly #windowMs: number;
  /** Counts in descending order, each with the time at which it was last seen. */
  readonly #peaks: { live: number; seenMs: number }[] = [];

  constructor(windowMs: number) {
    this.#windowMs = windowMs;
  }

  /** Records the number of live instances and returns the maximum. */
  most(live: number, nowMs: number): number {
    const peaks = this.#peaks;
    while (peaks.length > 0 && peaks.at(-1)!.live <= live) peaks.pop();
    peaks.push({ live, seenMs: nowMs });
    while (nowMs - peaks[0]!.seenMs > this.#windowMs) peaks.shift();
    return peaks[0]!.live;
  }
}

/** Admissions of one key that are reported to Redis, by bucket. */
export interface UnreportedAdmissions {
  readonly key: string;
  readonly counts: ReadonlyMap<number, number>;
}

/** Changes the amount of an admission that Redis counts in this bucket. */
type RecountReported = (key: string, bucket: number, by: number) => void;

/** The buckets in which Redis counts the reported admissions of a key. */
interface ReportedAdmissions {
  /** The bucket of the last report. */
  readonly bucket: number;
  /** The bucket of Redis by the bucket of this instance. */
  readonly redisBuckets: Map<number, number>;
}

/** Keys that are kept beyond twice the number of windows, so that clean-ups are rare. */
const SPARE_KEYS = 1_000;

/**
 * The admissions of this instance within a window, with and without Redis. Its local shares count
 * from here, and Redis gets a report of them after it lost its counters. Memory is bounded as
 * in the windows.
 */
export class InstanceAdmissions {
  readonly #windows: MemoryRateWindows;
  readonly #buckets: number;
  /** Admissions that the counters in Redis do not include. */
  #unreported = new Map<string, Map<number, number>>();
  /** The reports within a window, oldest first. */
  readonly #reported = new Map<string, ReportedAdmissions>();
  readonly #recountReported: RecountReported;
  /**
   * Changes that wait until it is known whether a report has arrived. Undefined if no report is on
   * its way.
   */
  #waiting: Parameters<RecountReported>[] | undefined;

  constructor(clock: Clock, windowMs: number, recountReported: RecountReported, maxKeys?: number) {
    this.#recountReported = recountReported;
    this.#windows = new MemoryRateWindows(clock, maxKeys, windowMs);
    this.#buckets = windowMs / BUCKET_MS;
  }

  /** The number of keys with admissions that have not been reported to Redis. */
  get unreportedKeys(): number {
    return this.#unreported.size;
  }

  /** Opens the window of a key. Throws 503 if more keys than fit were used within a window. */
  reserve(key: string): SlidingWindow {
    return this.#windows.reserve(key);
  }

  /** Records an admission that Redis counts. Returns its bucket here. */
  recordReported(window: SlidingWindow, admittedAmount = 1): number {
    return this.#windows.note(window, admittedAmount);
  }

  /**
   * Records an admission that Redis counted in counters that it has lost since. Returns its bucket.
   */
  recordUnreported(key: string, window: SlidingWindow, admittedAmount: number): number {
    const bucket = this.#windows.note(window, admittedAmount);
    this.#remember(key, bucket, admittedAmount);
    return bucket;
  }

  /** Changes the amount of an admission that the current counters of Redis did not decide. */
  change(key: string, bucket: number, by: number): void {
    if (this.#waiting !== undefined) {
      this.#waiting.push([key, bucket, by]);
      return;
    }
    const counts = this.#unreported.get(key);
    const admitted = counts?.get(bucket);
    const unreportedBy = admitted === undefined ? 0 : Math.max(by, -admitted);
    if (unreportedBy !== 0) counts!.set(bucket, admitted! + unreportedBy);
    const redisBucket = this.#reported.get(key)?.redisBuckets.get(bucket);
    if (redisBucket !== undefined && unreportedBy !== by)
      this.#recountReported(key, redisBucket, by - unreportedBy);
  }

  /** Returns true if an admission is so recent that Redis must still count it. */
  hasRecent(window: SlidingWindow, marginBuckets: number): boolean {
    const oldest = this.#windows.nowBucket - this.#buckets + marginBuckets;
    return window.newestBucket !== undefined && window.newestBucket > oldest;
  }

  /** Takes an amount of `share`, or rejects, without Redis. Throws 503 like `reserve`. */
  takeShare(key: string, share: number, amount = ONE_ADMISSION): RateDecision {
    const decision = this.#windows.take(key, share, amount);
    const { isAdmitted, admittedAmount, recount } = decision;
    if (!isAdmitted) return decision;
    const bucket = this.#windows.nowBucket;
    this.#remember(key, bucket, admittedAmount);
    if (recount === undefined) return decision;
    const change = createRecount(admittedAmount, (by) => this.change(key, bucket, by));
    return {
      ...decision,
      recount(amount) {
        recount(amount);
        change(amount);
      },
    };
  }

  /** Returns the number of admissions that are left of `share`. */
  remainingShare(key: string, share: number): number {
    return this.#windows.remaining(key, share);
  }

  /** Marks everything as unreported, after Redis lost its counters. */
  markAllUnreported(): void {
    this.#reported.clear();
    this.#unreported = new Map();
    for (const [key, window] of this.#windows.occupied()) {
      this.#unreported.set(key, window.counts());
    }
  }

  /**
   * Returns the next report and marks its admissions as reported. `confirmReport` or
   * `cancelReport` must follow.
   */
  takeReport(maxKeys: number, maxPieces: number): UnreportedAdmissions[] {
    this.#waiting ??= [];
    const report: UnreportedAdmissions[] = [];
    let pieces = 0;
    for (const [key, counts] of this.#unreported) {
      this.#dropOld(counts);
      if (counts.size > 0) {
        if (report.length === maxKeys || (report.length > 0 && pieces + counts.size > maxPieces))
          break;
        report.push({ key, counts });
        pieces += counts.size;
      }
      this.#unreported.delete(key);
    }
    return report;
  }

  /**
   * Records that the report has arrived. `redisBucketOf` returns the buckets in which Redis counts it.
   */
  confirmReport(report: readonly UnreportedAdmissions[], redisBucketOf: RedisBucketOf): void {
    const bucket = this.#windows.nowBucket;
    for (const { key, counts } of report) {
      const redisBuckets = this.#reported.get(key)?.redisBuckets ?? new Map<number, number>();
      // A bucket can be reported in parts. Reductions in the earliest bucket of Redis admit late
      // rather than too much.
      for (const localBucket of counts.keys()) {
        redisBuckets.set(
          localBucket,
          Math.min(
            redisBucketOf(localBucket),
            redisBuckets.get(localBucket) ?? Number.POSITIVE_INFINITY,
          ),
        );
      }
      this.#reported.delete(key);
      this.#reported.set(key, { bucket, redisBuckets });
    }
    for (const [key, reported] of this.#reported) {
      if (reported.bucket >= bucket - this.#buckets - 1) break;
      this.#reported.delete(key);
    }
    this.#changeWaiting();
  }

  /**
   * Marks a report as unreported again, after it failed or may have failed. At worst it is counted
   * twice, which admits less.
   */
  cancelReport(report: readonly UnreportedAdmissions[]): void {
    for (const { key, counts } of report) {
      const counted = this.#unreported.get(key);
      if (counted === undefined) {
        this.#unreported.set(key, new Map(counts));
        continue;
      }
      for (const [bucket, admitted] of counts) {
        counted.set(bucket, (counted.get(bucket) ?? 0) + admitted);
      }
    }
    this.#changeWaiting();
  }

  #changeWaiting(): void {
    const waiting = this.#waiting ?? [];
    this.#waiting = undefined;
    for (const change of waiting) this.change(...change);
  }

  /** Returns the age of a bucket in milliseconds, rounded so that Redis drops it late. */
  ageMs(bucket: number): number {
    return Math.max(0, (this.#windows.nowBucket - bucket - 1) * BUCKET_MS);
  }

  #remember(key: string, bucket: number, admittedAmount: number): void {
    let counts = this.#unreported.get(key);
    if (counts === undefined) {
      if (this.#unreported.size > SPARE_KEYS + 2 * this.#windows.size) this.#dropOldKeys();
      counts = new Map();
      this.#unreported.set(key, counts);
    }
    if (counts.size > 2 * this.#buckets) this.#dropOld(counts);
    counts.set(bucket, (counts.get(bucket) ?? 0) + admittedAmount);
  }

  /**
   * Drops admissions that have left every window. Otherwise they would accumulate while Redis is
   * unavailable.
   */
  #dropOldKeys(): void {
    for (const [key, counts] of this.#unreported) {
      this.#dropOld(counts);
      if (counts.size === 0) this.#unreported.delete(key);
    }
  }

  #dropOld(counts: Map<number, number>): void {
    const oldest = this.#windows.nowBucket - this.#buckets - 1;
    for (const bucket of counts.keys()) if (bucket <= oldest) counts.delete(bucket);
  }
}
