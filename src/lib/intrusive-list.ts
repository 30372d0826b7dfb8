/** An item of an IntrusiveList, which sets these links. */
export interface ListNode<Item> {
  older: Item | undefined;
  newer: Item | undefined;
}

/**
 * A doubly linked list of items in the order in which they were added or renewed. An item is in only one list at
 * a time. The links are members of the items and are cleared on removal.
 *
 * A Map or Set would be simpler. With fast turnover, however, JavaScriptCore's outgrown tables, which are linked
 * to their successors, keep all former entries alive until the next full garbage collection.
 */
export class IntrusiveList<Item extends ListNode<Item>> {
  #oldest: Item | undefined;
  #newest: Item | undefined;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** The first item. Its `newer` leads to the next one. */
  get oldest(): Item | undefined {
    return this.#oldest;
  }

  has(item: Item): boolean {
    return item.older !== undefined || item === this.#oldest;
  }

  /** Returns a copy of the list, oldest item first. */
  list(): Item[] {
    const items: Item[] = [];
    for (let item = this.#oldest; item !== undefined; item = item.newer) items.push(item);
    return items;
  }

  /** Adds an item that is not in any list, as the newest. */
  add(item: Item): void {
    item.older = this.#newest;
    item.newer = undefined;
    if (this.#newest === undefined) this.#oldest = item;
    else this.#newest.newer = item;
    this.#newest = item;
    this.#length++;
  }

  /** Makes an item of this list the newest. */
  renew(item: Item): void {
    if (item === this.#newest) return;
    this.remove(item);
    this.add(item);
  }

  /** Removes an item. Returns false if the item was not in this list. */
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
