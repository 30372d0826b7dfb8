import type { Clock } from "./clock.ts";

/** Who waits for news of things, by the ids of these. */
export class Ears {
  readonly #listening = new Map<string, Set<() => void>>();

  /** There is news of it. */
  notice(id: string): void {
    for (const hear of this.#listening.get(id) ?? []) hear();
  }

  noticeAll(): void {
    for (const id of this.#listening.keys()) this.notice(id);
  }

  /** From now on until it is closed; an aborted signal is news too. */
  open(id: string, signal: AbortSignal): Ear {
    return new Ear(this.#listening, id, signal);
  }
}

/** Receives the news of one thing, including what came before it listened. */
export class Ear {
  readonly #listening: Map<string, Set<() => void>>;
  readonly #id: string;
  readonly #signal: AbortSignal;
  #heard = false;
  #wake: () => void = () => {};
  readonly #hear = () => {
    this.#heard = true;
    this.#wake();
  };

  constructor(listening: Map<string, Set<() => void>>, id: string, signal: AbortSignal) {
    this.#listening = listening;
    this.#id = id;
    this.#signal = signal;
    const others = listening.get(id) ?? new Set();
    listening.set(id, others.add(this.#hear));
    signal.addEventListener("abort", this.#hear);
  }

  /** Resolves when something was heard, with false; or with true after `forMs` of silence. */
  async listen(clock: Clock, forMs: number): Promise<boolean> {
    const isQuiet =
      !this.#heard &&
      !this.#signal.aborted &&
      (await new Promise<boolean>((resolve) => {
        const cancel = clock.after(forMs, () => resolve(true));
        this.#wake = () => {
          cancel();
          resolve(false);
        };
      }));
    this.#wake = () => {};
    this.#heard = false;
    return isQuiet;
  }

  close(): void {
    this.#signal.removeEventListener("abort", this.#hear);
    const ears = this.#listening.get(this.#id);
    ears?.delete(this.#hear);
    if (ears?.size === 0) this.#listening.delete(this.#id);
  }
}
