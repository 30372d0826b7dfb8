import type { Wakes } from "./interface.ts";

/** Wake-ups of one turn of the event loop that may wait to be handed out; further ones are lost. */
const MAX_PENDING = 10_000;

/** Who listens for wake-ups in this process, and which wait to be handed out together. */
export class WakeBoard {
  readonly #listeners = new Map<string, Set<(id: string) => void>>();
  readonly #pending = new Map<string, Set<string>>();
  readonly #handOut: (wakes: readonly (readonly [kind: string, ids: readonly string[]])[]) => void;
  readonly #onError: (error: unknown) => void;
  #pendingCount = 0;

  constructor(
    handOut: (wakes: readonly (readonly [kind: string, ids: readonly string[]])[]) => void,
    onError: (error: unknown) => void,
  ) {
    this.#handOut = handOut;
    this.#onError = onError;
  }

  /** Each actor once, whatever the number of its wake-ups in this turn. */
  add(kind: string, id: string): void {
    let ids = this.#pending.get(kind);
    if (ids?.has(id) || this.#pendingCount >= MAX_PENDING) return;
    if (this.#pendingCount++ === 0) queueMicrotask(() => this.#flush());
    if (ids === undefined) {
      ids = new Set();
      this.#pending.set(kind, ids);
    }
    ids.add(id);
  }

  listen(kind: string, listener: (id: string) => void): () => void {
    let listeners = this.#listeners.get(kind);
    if (listeners === undefined) {
      listeners = new Set();
      this.#listeners.set(kind, listeners);
    }
    listeners.add(listener);
    return () => listeners.delete(listener);
  }

  /** A listener that fails keeps no other from hearing. */
  tell(kind: string, id: string): void {
    for (const listener of [...(this.#listeners.get(kind) ?? [])]) {
      try {
        listener(id);
      } catch (error) {
        this.#onError(error);
      }
    }
  }

  #flush(): void {
    const wakes = [...this.#pending].map(([kind, ids]) => [kind, [...ids]] as const);
    this.#pending.clear();
    this.#pendingCount = 0;
    for (const [kind, ids] of wakes) for (const id of ids) this.tell(kind, id);
    this.#handOut(wakes);
  }
}

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
