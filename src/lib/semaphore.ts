/** Lets so many through at a time; the others wait in the order in which they came. */
export class Semaphore {
  readonly #places: number;
  #taken = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(places: number) {
    this.#places = places;
  }

  async pass<Result>(run: () => Promise<Result>): Promise<Result> {
    if (this.#taken < this.#places) this.#taken += 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await run();
    } finally {
      // The place goes to the longest waiter, or is free.
      const next = this.#waiting.shift();
      if (next === undefined) this.#taken -= 1;
      else next();
    }
  }
}
