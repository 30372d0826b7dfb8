/** A promise of the design that did not hold, and at what. */
export class Violation extends Error {
  readonly promise: string;

  constructor(promise: string, what: string) {
    super(`${promise}: ${what}`);
    this.name = "Violation";
    this.promise = promise;
  }
}

export function broken(promise: string, what: string): never {
  throw new Violation(promise, what);
}
