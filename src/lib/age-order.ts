/** What stands in an order of age: its neighbours there, which are the order's to set. */
export interface Aged<Item> {
  older: Item | undefined;
  newer: Item | undefined;
}

/**
 * Items in the order in which they were put in or renewed, each in one order at a time. Its links are in the
 * items, and are cleared in those that leave: a Map or Set of what comes and goes fast grows by what was
 * taken out, and its outgrown tables, each linked to the next one, keep all that was ever in it alive until
 * the next full collection.
 */
export class AgeOrder<Item extends Aged<Item>> {
  #oldest: Item | undefined;
  #newest: Item | undefined;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** The others follow by their `newer`. */
  get oldest(): Item | undefined {
    return this.#oldest;
  }

  has(item: Item): boolean {
    return item.older !== undefined || item === this.#oldest;
  }

  /** All of the moment, oldest first. */
  list(): Item[] {
    const items: Item[] = [];
    for (let item = this.#oldest; item !== undefined; item = item.newer) items.push(item);
    return items;
  }

  /** Puts in an item that is in no order, as the newest. */
  add(item: Item): void {
    item.older = this.#newest;
    item.newer = undefined;
    if (this.#newest === undefined) this.#oldest = item;
    else this.#newest.newer = item;
    this.#newest = item;
    this.#length++;
  }

  /** Makes an item of this order its newest. */
  renew(item: Item): void {
    if (item === this.#newest) return;
    this.remove(item);
    this.add(item);
  }

  /** Takes an item out. False where it was not in. */
  remove(item: Item): boolean {
    if (!this.has(item)) return false;
    const { older, newer } = item;
    if (older === undefined) this.#oldest = newer;
    else older.newer = newer;
    if (newer === undefined) this.#newest = older;
    else newer.older = older;
    item.older = undefined;
    item.newer = undefined;
    this.#length--;
    return true;
  }
}
