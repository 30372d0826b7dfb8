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
