import type { Clock } from "../../../lib/clock.ts";
import { ONE_ADMISSION, type RateAmount, type RateDecision, recounting } from "../interface.ts";
import { MemoryRateWindows } from "../memory.ts";
import { BUCKET_MS, type SlidingWindow } from "../sliding-window.ts";
import type { PlaceOf } from "./rate-scripts.ts";

interface LocalSharesOptions {
  readonly clock: Clock;
  readonly windowMs: number;
  /** Ids of the instances that live, this one among them; known without Redis. */
  liveInstances(): readonly string[];
  readonly recountTold: RecountTold;
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
    const { clock, windowMs, recountTold } = options;
    this.#options = options;
    this.own = new OwnAdmissions(clock, windowMs, recountTold);
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
  take(key: string, limit: number, amount: RateAmount): RateDecision {
    const nowMs = this.#options.clock.nowMs();
    const live = this.countInstances();
    if (nowMs < this.#ignorantUntilMs) {
      const resetMs = this.#ignorantUntilMs;
      const retryAfterMs = resetMs - nowMs;
      const refusal = { isAdmitted: false, taken: 0, remaining: 0, recount: undefined };
      return { ...refusal, limit, resetMs, retryAfterMs };
    }
    const decision = this.own.takeShare(key, Math.max(1, Math.floor(limit / live)), amount);
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

/** Admissions of one key to be reported to Redis, by their buckets. */
export interface Untold {
  readonly key: string;
  readonly counts: ReadonlyMap<number, number>;
}

/** What an admission counts for has changed that Redis counts in this bucket. */
type RecountTold = (key: string, bucket: number, by: number) => void;

/** Where Redis counts what was reported of a key. */
interface Told {
  /** When it was last reported. */
  readonly bucket: number;
  /** By the buckets of this instance. */
  readonly places: Map<number, number>;
}

/** Keys that may be kept beyond twice those of a window, so that cleaning up is seldom. */
const SPARE_KEYS = 1_000;

/**
 * What this instance itself admitted within a window, whether through Redis or without it: its local
 * windows count from there, and are reported to a Redis that lost its counters. In memory it is bounded as
 * the windows are.
 */
export class OwnAdmissions {
  readonly #windows: MemoryRateWindows;
  readonly #buckets: number;
  /** Admissions that the counters in Redis do not hold. */
  #untold = new Map<string, Map<number, number>>();
  /** What was reported within a window, the longest ago first. */
  readonly #told = new Map<string, Told>();
  readonly #recountTold: RecountTold;
  /** Changes that wait until it is known whether a report has arrived; undefined where none is on its way. */
  #waiting: Parameters<RecountTold>[] | undefined;

  constructor(clock: Clock, windowMs: number, recountTold: RecountTold, maxKeys?: number) {
    this.#recountTold = recountTold;
    this.#windows = new MemoryRateWindows(clock, maxKeys, windowMs);
    this.#buckets = windowMs / BUCKET_MS;
  }

  /** Keys with admissions that have not been reported to Redis. */
  get untoldKeys(): number {
    return this.#untold.size;
  }

  /** Throws 503 where more keys than fit were used within a window. */
  reserve(key: string): SlidingWindow {
    return this.#windows.reserve(key);
  }

  /** An admission that Redis counted. Returns its bucket here. */
  noteTold(window: SlidingWindow, taken = 1): number {
    return this.#windows.note(window, taken);
  }

  /** An admission that Redis counted where it counts no longer. Returns its bucket. */
  noteUntold(key: string, window: SlidingWindow, taken: number): number {
    const bucket = this.#windows.note(window, taken);
    this.#remember(key, bucket, taken);
    return bucket;
  }

  /** What an admission counts for has changed that the counters of now did not decide. */
  change(key: string, bucket: number, by: number): void {
    if (this.#waiting !== undefined) {
      this.#waiting.push([key, bucket, by]);
      return;
    }
    const counts = this.#untold.get(key);
    const admitted = counts?.get(bucket);
    const untoldBy = admitted === undefined ? 0 : Math.max(by, -admitted);
    if (untoldBy !== 0) counts!.set(bucket, admitted! + untoldBy);
    const place = this.#told.get(key)?.places.get(bucket);
    if (place !== undefined && untoldBy !== by) this.#recountTold(key, place, by - untoldBy);
  }

  /** Whether something was admitted so recently that Redis must still count it. */
  hasRecent(window: SlidingWindow, marginBuckets: number): boolean {
    const oldest = this.#windows.nowBucket - this.#buckets + marginBuckets;
    return window.newestBucket !== undefined && window.newestBucket > oldest;
  }

  /** A part of `share`, decided here. Throws 503 as `reserve` does. */
  takeShare(key: string, share: number, amount = ONE_ADMISSION): RateDecision {
    const decision = this.#windows.take(key, share, amount);
    const { isAdmitted, taken, recount } = decision;
    if (!isAdmitted) return decision;
    const bucket = this.#windows.nowBucket;
    this.#remember(key, bucket, taken);
    if (recount === undefined) return decision;
    const change = recounting(taken, (by) => this.change(key, bucket, by));
    return {
      ...decision,
      recount(amount) {
        recount(amount);
        change(amount);
      },
    };
  }

  /** How many of `share` admissions are left here. */
  remainingShare(key: string, share: number): number {
    return this.#windows.remaining(key, share);
  }

  /** The counters in Redis are gone: everything has to be reported to them. */
  forgetTold(): void {
    this.#told.clear();
    this.#untold = new Map();
    for (const [key, window] of this.#windows.occupied()) {
      this.#untold.set(key, window.counts());
    }
  }

  /** Hands out what Redis is to be told next, and counts it as told; `confirmTold` or `untell` follows. */
  tell(maxKeys: number, maxPieces: number): Untold[] {
    this.#waiting ??= [];
    const told: Untold[] = [];
    let pieces = 0;
    for (const [key, counts] of this.#untold) {
      this.#dropOld(counts);
      if (counts.size > 0) {
        if (told.length === maxKeys || (told.length > 0 && pieces + counts.size > maxPieces)) break;
        told.push({ key, counts });
        pieces += counts.size;
      }
      this.#untold.delete(key);
    }
    return told;
  }

  /** The report has arrived: Redis counts it in these places. */
  confirmTold(told: readonly Untold[], placeOf: PlaceOf): void {
    const bucket = this.#windows.nowBucket;
    for (const { key, counts } of told) {
      const places = this.#told.get(key)?.places ?? new Map<number, number>();
      // A bucket may be told in parts: to give back in the earliest place admits late rather than too much.
      for (const own of counts.keys()) {
        places.set(own, Math.min(placeOf(own), places.get(own) ?? Number.POSITIVE_INFINITY));
      }
      this.#told.delete(key);
      this.#told.set(key, { bucket, places });
    }
    for (const [key, one] of this.#told) {
      if (one.bucket >= bucket - this.#buckets - 1) break;
      this.#told.delete(key);
    }
    this.#changeWaiting();
  }

  /** Telling failed, or may have: it is to be told again, at the worst twice, which admits less. */
  untell(told: readonly Untold[]): void {
    for (const { key, counts } of told) {
      const kept = this.#untold.get(key);
      if (kept === undefined) {
        this.#untold.set(key, new Map(counts));
        continue;
      }
      for (const [bucket, admitted] of counts) {
        kept.set(bucket, (kept.get(bucket) ?? 0) + admitted);
      }
    }
    this.#changeWaiting();
  }

  #changeWaiting(): void {
    const waiting = this.#waiting ?? [];
    this.#waiting = undefined;
    for (const change of waiting) this.change(...change);
  }

  /** Rounded so that Redis forgets late. */
  ageMs(bucket: number): number {
    return Math.max(0, (this.#windows.nowBucket - bucket - 1) * BUCKET_MS);
  }

  #remember(key: string, bucket: number, taken: number): void {
    let counts = this.#untold.get(key);
    if (counts === undefined) {
      if (this.#untold.size > SPARE_KEYS + 2 * this.#windows.size) this.#dropOldKeys();
      counts = new Map();
      this.#untold.set(key, counts);
    }
    if (counts.size > 2 * this.#buckets) this.#dropOld(counts);
    counts.set(bucket, (counts.get(bucket) ?? 0) + taken);
  }

  /** What has left every window need not be told; without this it would grow as long as Redis is gone. */
  #dropOldKeys(): void {
    for (const [key, counts] of this.#untold) {
      this.#dropOld(counts);
      if (counts.size === 0) this.#untold.delete(key);
    }
  }

  #dropOld(counts: Map<number, number>): void {
    const oldest = this.#windows.nowBucket - this.#buckets - 1;
    for (const bucket of counts.keys()) if (bucket <= oldest) counts.delete(bucket);
  }
}
