const SPREAD = 0x9e3779b9;

/** Randomness that follows from its seed alone (mulberry32). */
export class SeededRandom {
  #state: number;

  constructor(seed: number) {
    this.#state = Math.imul(seed ^ SPREAD, 0x85ebca6b) >>> 0;
  }

  /** Evenly spread in [0, 1). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  }

  /** A whole number from `least` to `most`, both included. */
  integer(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  between(least: number, most: number): number {
    return least + this.next() * (most - least);
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<Item>(items: readonly Item[]): Item {
    return items[Math.floor(this.next() * items.length)]!;
  }

  /** Mostly short, at times much longer: what networks and disks do. */
  delay(usualMs: number, longestMs: number, longShare = 0.03): number {
    return this.chance(longShare) ? this.between(usualMs, longestMs) : this.between(0.01, usualMs);
  }
}
