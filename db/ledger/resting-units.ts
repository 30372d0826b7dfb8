import type { Clock } from "../../src/lib/clock.ts";
import type { Unit } from "./units.ts";

/** Between two tries to write what the database cannot write at the moment. */
export const WRITE_AGAIN_MS = 250;

/** Units that the database could not write, until they are tried again. */
export class RestingUnits {
  readonly #clock: Clock;
  readonly #tryAgain: (unit: Unit) => void;
  readonly #resting = new Map<Unit, () => void>();

  constructor(clock: Clock, tryAgain: (unit: Unit) => void) {
    this.#clock = clock;
    this.#tryAgain = tryAgain;
  }

  add(unit: Unit): void {
    const cancel = this.#clock.after(WRITE_AGAIN_MS, () => this.#end(unit));
    this.#resting.set(unit, cancel);
  }

  /** Each is tried now. */
  endAll(): void {
    for (const [unit, cancel] of this.#resting) {
      cancel();
      this.#end(unit);
    }
  }

  #end(unit: Unit): void {
    this.#resting.delete(unit);
    this.#tryAgain(unit);
  }
}
