/**
 * A Map for entries with fast turnover. In a plain Map, JavaScriptCore's outgrown tables keep all former
 * values alive until the next full garbage collection; here they hold numbers only.
 */
export class ChurningMap<Value extends object> {
  readonly #places = new Map<string, number>();
  readonly #values: (Value | undefined)[] = [];
  readonly #free: number[] = [];

  get size(): number {
    return this.#places.size;
  }

  has(key: string): boolean {
    return this.#places.has(key);
  }

  get(key: string): Value | undefined {
    const place = this.#places.get(key);
    return place === undefined ? undefined : this.#values[place];
  }

  set(key: string, value: Value): void {
    let place = this.#places.get(key);
    if (place === undefined) {
      place = this.#free.pop() ?? this.#values.length;
      this.#places.set(key, place);
    }
    this.#values[place] = value;
  }

  /** Returns the removed value. */
  delete(key: string): Value | undefined {
    const place = this.#places.get(key);
    if (place === undefined) return undefined;
    const value = this.#values[place];
    this.#places.delete(key);
    this.#values[place] = undefined;
    this.#free.push(place);
    return value;
  }
}
