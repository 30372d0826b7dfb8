/** A bounded number of places, of which no owner gets all. */
export class SharedSlots {
  readonly #most: number;
  readonly #mostOfOne: number;
  readonly #byOwner = new Map<string, number>();
  #taken = 0;

  constructor(most: number, mostOfOne: number) {
    this.#most = most;
    this.#mostOfOne = mostOfOne;
  }

  /** False where all are taken, or all that one owner may have. */
  tryTake(owner: string): boolean {
    const own = this.#byOwner.get(owner) ?? 0;
    if (this.#taken >= this.#most || own >= this.#mostOfOne) return false;
    this.#taken++;
    this.#byOwner.set(owner, own + 1);
    return true;
  }

  free(owner: string): void {
    this.#taken--;
    const own = this.#byOwner.get(owner)! - 1;
    if (own === 0) this.#byOwner.delete(owner);
    else this.#byOwner.set(owner, own);
  }
}
