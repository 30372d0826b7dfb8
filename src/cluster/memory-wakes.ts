import type { Wakes } from "./interface.ts";
import { WakeBoard } from "./wake-board.ts";

/** Wake-ups of a process that is the only one. */
export class MemoryWakes implements Wakes {
  readonly #board: WakeBoard;

  constructor(onError: (error: unknown) => void) {
    this.#board = new WakeBoard(() => {}, onError);
  }

  wake(kind: string, id: string): void {
    this.#board.add(kind, id);
  }

  onWake(kind: string, listener: (id: string) => void): () => void {
    return this.#board.listen(kind, listener);
  }
}
