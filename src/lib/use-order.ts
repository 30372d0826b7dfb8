/** What stands in an order of use: its neighbours there, which are the order's to set. */
export interface InUse<Item> {
  older: Item | undefined;
  newer: Item | undefined;
}

/**
 * Items in the order of their last use. Its links are in the items: a Map in the order of use would have to
 * take an item out and in again at each use, and grows by what was taken out, to several times its size.
 */
export class UseOrder<Item extends InUse<Item>> {
  #oldest: Item | undefined;
  #newest: Item | undefined;

  /** The longest unused; the others follow by their `newer`. */
  get oldest(): Item | undefined {
    return this.#oldest;
  }

  /** Puts in an item that is in no order, as the last used. */
  add(item: Item): void {
    item.older = this.#newest;
    item.newer = undefined;
    if (this.#newest === undefined) this.#oldest = item;
    else this.#newest.newer = item;
    this.#newest = item;
  }

  /** An item of this order was used. */
  use(item: Item): void {
    if (item === this.#newest) return;
    this.remove(item);
    this.add(item);
  }

  /** Takes an item of this order out. */
  remove(item: Item): void {
    const { older, newer } = item;
    if (older === undefined) this.#oldest = newer;
    else older.newer = newer;
    if (newer === undefined) this.#newest = older;
    else newer.older = older;
    item.older = undefined;
    item.newer = undefined;
  }
}
