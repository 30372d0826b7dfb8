/**
 * Coordination between instances. Losing this state must never affect money, ordering or security.
 */

import type { PastAdmissions } from "../../../db/queries/recent-admissions.ts";

/** A decision about one admission to a rate window. */
export interface RateDecision {
  readonly isAdmitted: boolean;
  readonly limit: number;
  /** The amount that was taken from the window; 0 if rejected. */
  readonly admittedAmount: number;
  /** The rest of the limit in the window that ends now. */
  readonly remaining: number;
  /** Milliseconds since the epoch at which the oldest admission leaves the window. */
  readonly resetMs: number;
  /** If rejected: milliseconds until the request would be admitted. */
  readonly retryAfterMs: number;
  /**
   * Replaces the amount that the admission counts for, while it is in the window. A reduction while
   * Redis is unavailable can have no effect. Undefined if rejected, and for admissions of the
   * amount one.
   */
  readonly recount: ((amount: number) => void) | undefined;
}

/** A requested amount of a rate window. All three numbers are at least 1. */
export interface RateAmount {
  /** The requested amount, taken if the window has that much left. */
  readonly full: number;
  /**
   * If `full` does not fit, the rest of the limit is taken, up to `reduced`, if it is at least
   * `least`.
   */
  readonly reduced: number;
  readonly least: number;
}

export const ONE_ADMISSION: RateAmount = { full: 1, reduced: 1, least: 1 };

/**
 * Returns the amount that is taken if `left` is left of the limit. Returns 0 if the request is
 * rejected.
 */
export function amountToTake({ full, reduced, least }: RateAmount, left: number): number {
  if (full <= left) return full;
  return least <= left ? Math.min(reduced, left) : 0;
}

/**
 * Returns the `recount` of an admission. It calls `change` with the difference to the previous
 * amount.
 */
export function createRecount(
  admittedAmount: number,
  change: (by: number) => void,
): NonNullable<RateDecision["recount"]> {
  let counted = admittedAmount;
  return (amount) => {
    if (amount === counted) return;
    const by = amount - counted;
    counted = amount;
    change(by);
  };
}

/**
 * Returns the name of the window of a key's tokens. The window of its requests is named by the id
 * of the key.
 */
export function tokenWindow(keyId: string): string {
  return `${keyId}:tokens`;
}

export interface RateWindows {
  /** Takes an amount, by default one, or rejects. Never admits more than `limit` in any 60 s. */
  take(key: string, limit: number, amount?: RateAmount): RateDecision | Promise<RateDecision>;
  /** Returns the rest of `limit` now. Takes nothing, and never rejects. */
  remaining(key: string, limit: number): number | Promise<number>;
}

/** Wake-ups of owned actors, over all instances. */
export interface Wakes {
  /**
   * Notifies every instance, including this one, that the actor may have work. Best effort: a
   * wake-up can be lost, which costs latency only, or arrive twice. The wake-ups of one turn of the
   * event loop are sent together.
   */
  wake(kind: string, id: string): void;
  /** Adds a listener. Returns the function that removes it. */
  onWake(kind: string, listener: (id: string) => void): () => void;
}

/** A limit of concurrent calls, over all instances. */
export interface ParallelLimit {
  readonly id: string;
  /** The maximum number of concurrent calls. At least 1. */
  readonly max: number;
  /**
   * True for a low-priority call, which takes a slot only if half of the slots stay free for others.
   */
  readonly reservesHalf?: boolean | undefined;
  /** Slots that the call leaves free for calls of other organizations. Defaults to 0. */
  readonly reservedForOthers?: number | undefined;
}

/**
 * Returns the number of slots that must stay free in addition to the slot that a call takes. Half
 * of a single slot counts as none.
 */
export function reservedSlots({
  max,
  reservesHalf,
  reservedForOthers = 0,
}: Omit<ParallelLimit, "id">): number {
  return Math.max(reservesHalf === true ? Math.floor(max / 2) : 0, reservedForOthers);
}

/** Slots for concurrent calls. A caller that gets no slot decides itself whether to wait. */
export interface ParallelSlots {
  /** Takes a slot within each limit, or none if one of the limits is reached. Never rejects. */
  take(limits: readonly ParallelLimit[]): boolean | Promise<boolean>;
  /** Releases the slots of one `take`. */
  release(limits: readonly ParallelLimit[]): void;
  /** Sets the listener that is called with the id of each limit that may have a free slot. */
  onFree(listener: (limitId: string) => void): void;
  /**
   * Starts to count together with the other instances. Required if the configuration has limits.
   */
  begin(): Promise<void>;
}

/** The coordination of one instance with the others. */
export interface Coordination {
  readonly slots: ParallelSlots;
  readonly rates: RateWindows;
  /** Undefined if this process is the only instance. */
  readonly wakes: Wakes | undefined;
  /** State of Redis. Undefined if this process is the only instance. */
  readonly redis: RedisState | undefined;
  /**
   * Counts the admissions of a predecessor, oldest first. Undefined if Redis stores the windows.
   */
  readonly restoreRates: ((admissions: readonly PastAdmissions[]) => void) | undefined;
  /** Resolves after the first attempt to reach Redis, whether it succeeded or not. */
  start(): Promise<void>;
  close(): Promise<void>;
}

export interface RedisState {
  readonly isUp: boolean;
  /** The number of admissions that were decided without Redis since the start. */
  readonly admittedWithoutRedis: number;
}
