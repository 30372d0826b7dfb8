import type { GatewayError } from "./errors.ts";

/*
 * How organizations share the bounded resources of the gateway. Every pool, queue and gate follows one rule:
 *
 * - Owners are served in turn. The owner with the least under way comes first, and among equals the one that was
 *   served longest ago. So while others wait, an owner never grows beyond an equal share, which is at most half.
 * - For each eight slots that an owner holds, one stays free. So an owner that is alone uses eight ninths of a
 *   large pool. A new owner is still served immediately if the other owners hold as much as they can.
 * - A waiting room is also such a pool: an owner that fills its share of the room is rejected, and others still
 *   wait.
 *
 * Running work is never preempted. In a pool of fewer than eight slots this rule leaves none free. If its work
 * can be slow, `mostOfOne` keeps one owner from holding all slots.
 */

/** The number of held slots for which an owner leaves one slot free. */
const HELD_FOR_EACH_FREE = 8;

/** Waiting items by owner. Owners are served in turn; the items of each owner keep their order. */
export class FairQueue<Item> {
  readonly #waiting = new Map<string, Item[]>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(owner: string, item: Item): void {
    const items = this.#waiting.get(owner);
    if (items) items.push(item);
    else this.#waiting.set(owner, [item]);
    this.#size++;
  }

  /**
   * Removes and returns the first item of the owner with the least under way, as `loadOf` counts it. Only owners
   * whose first item passes `mayTake` are considered. Among equals, the owner that was served longest ago comes
   * first. Returns undefined if no owner has such an item.
   */
  shift(
    loadOf: (first: Item) => number = () => 0,
    mayTake: (first: Item) => boolean = () => true,
  ): Item | undefined {
    let best: string | undefined;
    let bestLoad = Number.POSITIVE_INFINITY;
    for (const [owner, items] of this.#waiting) {
      const load = loadOf(items[0]!);
      if (load >= bestLoad || !mayTake(items[0]!)) continue;
      best = owner;
      bestLoad = load;
      if (load === 0) break;
    }
    if (best === undefined) return undefined;
    const item = this.#waiting.get(best)![0]!;
    this.take(best, item);
    return item;
  }

  /**
   * Returns all items in the order of `shift`: an owner's next item comes after equally many items of each other
   * owner.
   */
  inTurn(loadOf: (owner: string) => number = () => 0): Item[] {
    const rows = [...this.#waiting].map(([owner, items]) => ({ items, load: loadOf(owner) }));
    const ordered: { readonly item: Item; readonly load: number }[] = [];
    for (const { items, load } of rows) {
      for (const [at, item] of items.entries()) ordered.push({ item, load: load + at });
    }
    return ordered.sort((left, right) => left.load - right.load).map(({ item }) => item);
  }

  /** Removes an item that is served. Its owner is then the last in turn. */
  take(owner: string, item: Item): void {
    if (!this.remove(owner, item)) return;
    const items = this.#waiting.get(owner);
    if (items === undefined) return;
    this.#waiting.delete(owner);
    this.#waiting.set(owner, items);
  }

  /** Removes an item that no longer waits. Returns false if it was removed before. */
  remove(owner: string, item: Item): boolean {
    const items = this.#waiting.get(owner);
    const at = items?.indexOf(item) ?? -1;
    if (items === undefined || at < 0) return false;
    items.splice(at, 1);
    this.#size--;
    if (items.length === 0) this.#waiting.delete(owner);
    return true;
  }
}

/**
 * A bounded amount, in any unit, that owners share by the rule above. Owners do not wait for it: a request for
 * more succeeds or fails immediately.
 */
export class SharedRoom {
  readonly #most: number;
  readonly #mostOfOne: number;
  readonly #byOwner = new Map<string, number>();
  #used = 0;

  constructor(most: number, mostOfOne = most) {
    this.#most = most;
    this.#mostOfOne = mostOfOne;
  }

  /** The amount that all owners hold together. */
  get used(): number {
    return this.#used;
  }

  /** The number of owners that hold something. */
  get owners(): number {
    return this.#byOwner.size;
  }

  /** The names of the owners that hold something. */
  get holders(): Iterable<string> {
    return this.#byOwner.keys();
  }

  heldBy(owner: string): number {
    return this.#byOwner.get(owner) ?? 0;
  }

  /** Returns true if there is room for the amount and the rule allows it for the owner. */
  admits(owner: string, amount = 1): boolean {
    const held = this.heldBy(owner) + amount;
    const free = this.#most - this.#used - amount;
    return held <= this.#mostOfOne && slotsLeftFree(held) <= free && free >= 0;
  }

  /** Takes the amount. Returns false, and takes nothing, if `admits` returns false. */
  tryTake(owner: string, amount = 1): boolean {
    if (!this.admits(owner, amount)) return false;
    this.#used += amount;
    this.#byOwner.set(owner, this.heldBy(owner) + amount);
    return true;
  }

  free(owner: string, amount = 1): void {
    this.#used -= amount;
    const held = this.heldBy(owner) - amount;
    if (held === 0) this.#byOwner.delete(owner);
    else this.#byOwner.set(owner, held);
  }
}

/** Returns the number of slots that an owner leaves free for others. */
export function slotsLeftFree(held: number): number {
  return Math.floor(held / HELD_FOR_EACH_FREE);
}

/**
 * Returns the limit of one owner in a small pool whose work can be slow: all slots but one, or all if there are
 * fewer than three.
 */
export function allButOne(slots: number): number {
  return slots < 3 ? slots : slots - 1;
}

/** Ends a wait early. An AbortSignal is a WaitSignal. */
export interface WaitSignal {
  readonly aborted: boolean;
  readonly reason: unknown;
  addEventListener(type: "abort", listener: EventListenerObject): void;
  removeEventListener(type: "abort", listener: EventListenerObject): void;
}

export interface FairSemaphoreOptions {
  /** Most concurrent work. */
  readonly most: number;
  /** Most concurrent work of one owner. Defaults to `most`. */
  readonly mostOfOne?: number;
  /** Most waiting work. */
  readonly maxWaiting: number;
  /** Most waiting work of one owner. Defaults to `maxWaiting`. */
  readonly maxWaitingOfOne?: number;
  /** Longest wait in milliseconds; longer waits are rejected. Undefined means no limit. */
  readonly maxWaitMs?: number;
  /** Returns the error for work that finds no room to wait, or waits too long. */
  refusal(): GatewayError;
}

/** Releases the acquired slot. Can be called repeatedly. */
export type Release = () => void;

interface WaitingEntry {
  readonly owner: string;
  enter(): void;
}

/** Limits concurrent work. Owners share the slots by the rule above. */
export class FairSemaphore {
  readonly #options: FairSemaphoreOptions;
  readonly #slots: SharedRoom;
  readonly #waitingRoom: SharedRoom;
  readonly #queue = new FairQueue<WaitingEntry>();

  constructor(options: FairSemaphoreOptions) {
    this.#options = options;
    this.#slots = new SharedRoom(options.most, options.mostOfOne);
    this.#waitingRoom = new SharedRoom(options.maxWaiting, options.maxWaitingOfOne);
  }

  /** The amount of running work. */
  get running(): number {
    return this.#slots.used;
  }

  /** The amount of waiting work. */
  get waiting(): number {
    return this.#queue.size;
  }

  /**
   * Resolves when the owner has a slot, which it holds until it calls the returned function. Rejects with
   * `refusal`, or with the signal's reason if the signal aborts first.
   */
  async acquire(owner: string, signal?: WaitSignal): Promise<Release> {
    if (signal?.aborted) throw signal.reason;
    if (!this.#slots.tryTake(owner)) await this.#wait(owner, signal);
    let isReleased = false;
    return () => {
      if (isReleased) return;
      isReleased = true;
      this.#slots.free(owner);
      this.#letIn();
    };
  }

  /** Runs the work in a slot. Rejects if `acquire` or the work does. */
  async run<Result>(
    owner: string,
    work: () => Promise<Result>,
    signal?: WaitSignal,
  ): Promise<Result> {
    const release = await this.acquire(owner, signal);
    try {
      return await work();
    } finally {
      release();
    }
  }

  async #wait(owner: string, signal: WaitSignal | undefined): Promise<void> {
    const { maxWaitMs, refusal } = this.#options;
    if (!this.#waitingRoom.tryTake(owner)) throw refusal();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const entry: WaitingEntry = { owner, enter: resolve };
    const leave = (reason: unknown): void => {
      if (this.#queue.remove(owner, entry)) reject(reason);
    };
    const listener = { handleEvent: () => leave(signal?.reason) };
    signal?.addEventListener("abort", listener);
    const timer =
      maxWaitMs === undefined ? undefined : setTimeout(() => leave(refusal()), maxWaitMs);
    this.#queue.push(owner, entry);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", listener);
      this.#waitingRoom.free(owner);
    }
  }

  #letIn(): void {
    for (;;) {
      const next = this.#queue.shift(
        ({ owner }) => this.#slots.heldBy(owner),
        ({ owner }) => this.#slots.admits(owner),
      );
      if (next === undefined) return;
      this.#slots.tryTake(next.owner);
      next.enter();
    }
  }
}
