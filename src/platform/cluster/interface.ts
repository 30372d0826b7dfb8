import type { PastAdmissions } from "../../../db/queries/recent-admissions.ts";

/** What instances ask of one another. Nothing whose loss would cost money, order or security. */
export interface RateDecision {
  readonly isAdmitted: boolean;
  readonly limit: number;
  /** How much of the window was taken; 0 for a refusal. */
  readonly taken: number;
  /** What is left of the limit in the window that ends now. */
  readonly remaining: number;
  /** Milliseconds since the epoch at which the oldest admission leaves the window. */
  readonly resetMs: number;
  /** For a refusal: milliseconds until it would be admitted. */
  readonly retryAfterMs: number;
  /**
   * Replaces what the admission counts for by another amount, where it was taken and for as long as it is in the
   * window. What is given back while Redis is lost may stay counted. Undefined for refusals, and where one was taken.
   */
  readonly recount: ((amount: number) => void) | undefined;
}

/** How much of a window is asked for. */
export interface RateAmount {
  /** Taken where it fits. */
  readonly full: number;
  /** Else what is left is taken, up to `reduced`, where that is at least `least`. All three are at least 1. */
  readonly reduced: number;
  readonly least: number;
}

export const ONE_ADMISSION: RateAmount = { full: 1, reduced: 1, least: 1 };

/** What is taken where so much is left. */
export function takenOf({ full, reduced, least }: RateAmount, left: number): number {
  if (full <= left) return full;
  return least <= left ? Math.min(reduced, left) : 0;
}

/** Recounts an admission of so much by the changes of its amount. */
export function recounting(
  taken: number,
  change: (by: number) => void,
): NonNullable<RateDecision["recount"]> {
  let counted = taken;
  return (amount) => {
    if (amount === counted) return;
    const by = amount - counted;
    counted = amount;
    change(by);
  };
}

/** The window of a key's tokens; that of its requests has the id of the key. */
export function tokenWindow(keyId: string): string {
  return `${keyId}:tokens`;
}

export interface RateWindows {
  /** Takes an amount of the `limit` of any 60 s, one if it is left out, or refuses; never admits more. */
  take(key: string, limit: number, amount?: RateAmount): RateDecision | Promise<RateDecision>;
  /** How much of `limit` is left now. Takes none, and never rejects. */
  remaining(key: string, limit: number): number | Promise<number>;
}

/** Wake-ups of owned actors, over all instances. */
export interface Wakes {
  /**
   * Tells every instance, this one too, that the actor may have work. Best effort: a wake-up may be lost,
   * which costs latency only, or come twice. Those of one turn of the event loop go out together.
   */
  wake(kind: string, id: string): void;
  /** Returns the way to stop listening. */
  onWake(kind: string, listener: (id: string) => void): () => void;
}

/** How many calls may run at once, over all instances. */
export interface ParallelLimit {
  readonly id: string;
  /** At least 1. */
  readonly max: number;
  /** True for a call that leaves half of the places to others: it takes one only while fewer are taken. */
  readonly reservesHalf?: boolean | undefined;
  /** Places that the call leaves free for calls of other organizations; 0 if absent. */
  readonly spares?: number | undefined;
}

/** Places that have to stay free besides the one that a call takes; of a single place none. */
export function reservedSlots({
  max,
  reservesHalf,
  spares = 0,
}: Omit<ParallelLimit, "id">): number {
  return Math.max(reservesHalf === true ? Math.floor(max / 2) : 0, spares);
}

/** The places of calls that run at once. Who finds none decides for itself whether to wait. */
export interface ParallelSlots {
  /** Takes a place within each limit, or none where one of them is full. Never rejects. */
  take(limits: readonly ParallelLimit[]): boolean | Promise<boolean>;
  /** Gives back what one `take` took. */
  release(limits: readonly ParallelLimit[]): void;
  /** Sets the listener that is called with limits within which a place may have become free. */
  onFree(listener: (limitId: string) => void): void;
  /** Begins to count together with the other instances. Needed where the configuration has limits. */
  begin(): Promise<void>;
}

/** What one instance needs of the others, with everything that belongs to it. */
export interface Coordination {
  readonly slots: ParallelSlots;
  readonly rates: RateWindows;
  /** Undefined where this process is the only instance. */
  readonly wakes: Wakes | undefined;
  /** How Redis does; undefined where this process is the only instance. */
  readonly redis: RedisState | undefined;
  /** Counts what a predecessor has admitted, in the order of time. Undefined where Redis keeps the windows. */
  readonly restoreRates: ((admissions: readonly PastAdmissions[]) => void) | undefined;
  /** Resolves when Redis was tried once, whether it answered or not. */
  start(): Promise<void>;
  close(): Promise<void>;
}

export interface RedisState {
  readonly isUp: boolean;
  /** Admissions that were decided without Redis since the start. */
  readonly admittedApart: number;
}
