/**
 * Items that wait, by whom they belong to. Takers are served in turn, so that however much one has
 * waiting, the others wait for no more than one of its items at a time. Items of one keep their order.
 */
export class FairQueue<Item> {
  readonly #waiting = new Map<string, Item[]>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(key: string, item: Item): void {
    const items = this.#waiting.get(key);
    if (items) items.push(item);
    else this.#waiting.set(key, [item]);
    this.#size++;
  }

  /**
   * The first item of the key that has the least under way, as `loadOf` counts it, among those whose
   * first one `mayTake` lets through; of equals, the one that was served longest ago.
   */
  shift(
    loadOf: (first: Item) => number = () => 0,
    mayTake: (first: Item) => boolean = () => true,
  ): Item | undefined {
    let best: string | undefined;
    let bestLoad = Number.POSITIVE_INFINITY;
    for (const [key, items] of this.#waiting) {
      const load = loadOf(items[0]!);
      if (load >= bestLoad || !mayTake(items[0]!)) continue;
      best = key;
      bestLoad = load;
      if (load === 0) break;
    }
    return best === undefined ? undefined : this.#take(best);
  }

  #take(key: string): Item {
    const items = this.#waiting.get(key)!;
    const item = items.shift()!;
    this.#size--;
    // To the end of the row.
    this.#waiting.delete(key);
    if (items.length > 0) this.#waiting.set(key, items);
    return item;
  }
}

/** Lets a bounded number through at a time, and of one key no more than `mostOfOne`. */
export class FairSemaphore {
  readonly #most: number;
  readonly #mostOfOne: number;
  readonly #held = new Map<string, number>();
  readonly #queue = new FairQueue<{ readonly key: string; enter(): void }>();
  #inside = 0;

  constructor(most: number, mostOfOne: number) {
    this.#most = most;
    this.#mostOfOne = mostOfOne;
  }

  /** Runs `work` once there is room for it. */
  async run<Result>(key: string, work: () => Promise<Result>): Promise<Result> {
    await new Promise<void>((resolve) => {
      this.#queue.push(key, { key, enter: resolve });
      this.#letIn();
    });
    try {
      return await work();
    } finally {
      const held = this.#heldBy(key) - 1;
      if (held === 0) this.#held.delete(key);
      else this.#held.set(key, held);
      this.#inside--;
      this.#letIn();
    }
  }

  #letIn(): void {
    while (this.#inside < this.#most) {
      const next = this.#queue.shift(
        ({ key }) => this.#heldBy(key),
        ({ key }) => this.#heldBy(key) < this.#mostOfOne,
      );
      if (next === undefined) return;
      this.#held.set(next.key, this.#heldBy(next.key) + 1);
      this.#inside++;
      next.enter();
    }
  }

  #heldBy(key: string): number {
    return this.#held.get(key) ?? 0;
  }
}

/** Bounded room, in whatever unit, of which no owner gets all. */
export class SharedRoom {
  readonly #most: number;
  readonly #mostOfOne: number;
  readonly #byOwner = new Map<string, number>();
  #taken = 0;

  constructor(most: number, mostOfOne: number) {
    this.#most = most;
    this.#mostOfOne = mostOfOne;
  }

  /** False where there is not so much left, or not for this owner. */
  tryTake(owner: string, amount = 1): boolean {
    const own = (this.#byOwner.get(owner) ?? 0) + amount;
    if (this.#taken + amount > this.#most || own > this.#mostOfOne) return false;
    this.#taken += amount;
    this.#byOwner.set(owner, own);
    return true;
  }

  free(owner: string, amount = 1): void {
    this.#taken -= amount;
    const own = (this.#byOwner.get(owner) ?? 0) - amount;
    if (own === 0) this.#byOwner.delete(owner);
    else this.#byOwner.set(owner, own);
  }
}
