import type { Clock } from "../../lib/clock.ts";
import type { RateDecision } from "../interface.ts";
import { MemoryRateWindows } from "../memory.ts";
import { BUCKET_MS, type SlidingWindow } from "../sliding-window.ts";

/** Admissions of one key to be reported to Redis, by their buckets. */
export interface Untold {
  readonly key: string;
  readonly counts: ReadonlyMap<number, number>;
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

  constructor(clock: Clock, windowMs: number, maxKeys?: number) {
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

  /** An admission that Redis counted. */
  noteTold(window: SlidingWindow): void {
    this.#windows.note(window);
  }

  /** An admission that Redis counted where it counts no longer. */
  noteUntold(key: string, window: SlidingWindow): void {
    this.#windows.note(window);
    this.#remember(key);
  }

  /** Whether something was admitted so recently that Redis must still count it. */
  hasRecent(window: SlidingWindow, marginBuckets: number): boolean {
    const oldest = this.#windows.nowBucket - this.#buckets + marginBuckets;
    return window.newestBucket !== undefined && window.newestBucket > oldest;
  }

  /** One admission of `share`, decided here. Throws 503 as `reserve` does. */
  takeShare(key: string, share: number): RateDecision {
    const decision = this.#windows.take(key, share);
    if (decision.isAdmitted) this.#remember(key);
    return decision;
  }

  /** How many of `share` admissions are left here. */
  remainingShare(key: string, share: number): number {
    return this.#windows.remaining(key, share);
  }

  /** The counters in Redis are gone: everything has to be reported to them. */
  forgetTold(): void {
    this.#untold = new Map();
    for (const [key, window] of this.#windows.occupied()) {
      this.#untold.set(key, window.counts());
    }
  }

  /** Hands out what Redis is to be told next, and counts it as told. */
  tell(maxKeys: number, maxPieces: number): Untold[] {
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
  }

  /** Rounded so that Redis forgets late. */
  ageMs(bucket: number): number {
    return Math.max(0, (this.#windows.nowBucket - bucket - 1) * BUCKET_MS);
  }

  #remember(key: string): void {
    let counts = this.#untold.get(key);
    if (counts === undefined) {
      if (this.#untold.size > SPARE_KEYS + 2 * this.#windows.size) this.#dropOldKeys();
      counts = new Map();
      this.#untold.set(key, counts);
    }
    if (counts.size > 2 * this.#buckets) this.#dropOld(counts);
    const bucket = this.#windows.nowBucket;
    counts.set(bucket, (counts.get(bucket) ?? 0) + 1);
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
