/**
 * A Map for entries with fast turnover. In a plain Map, JavaScriptCore's outgrown tables keep all former values
 * alive until the next full garbage collection. Here these tables contain numbers only.
 */
export class GcFriendlyMap<Value extends object> {
  readonly #slots = new Map<string, number>();
  readonly #values: (Value | undefined)[] = [];
  readonly #free: number[] = [];

  get size(): number {
    return this.#slots.size;
  }

  has(key: string): boolean {
    return this.#slots.has(key);
  }

  get(key: string): Value | undefined {
    const slot = this.#slots.get(key);
    return slot === undefined ? undefined : this.#values[slot];
  }

  set(key: string, value: Value): void {
    let slot = this.#slots.get(key);
    if (slot === undefined) {
      slot = this.#free.pop() ?? this.#values.length;
      this.#slots.set(key, slot);
    }
    this.#values[slot] = value;
  }

  /** Returns the removed value. */
  delete(key: string): Value | undefined {
    const slot = this.#slots.get(key);
    if (slot === undefined) return undefined;
    const value = this.#values[slot];
    this.#slots.delete(key);
    this.#values[slot] = undefined;
    this.#free.push(slot);
    return value;
  }
}
