import type { Clock } from "./clock.ts";

/** Listeners by object id. */
export class ChangeListeners {
  readonly #listening = new Map<string, Set<() => void>>();

  /** Notifies the listeners of an object. */
  notice(id: string): void {
    for (const hear of this.#listening.get(id) ?? []) hear();
  }

  noticeAll(): void {
    for (const id of this.#listening.keys()) this.notice(id);
  }

  /** Subscribes to an object until `close`. Aborting the signal also counts as a notification. */
  open(id: string, signal: AbortSignal): ChangeSubscription {
    return new ChangeSubscription(this.#listening, id, signal);
  }
}

/** A subscription to one object. It remembers a notification that arrived before the wait began. */
export class ChangeSubscription {
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

  /** Returns false after a notification, or true after `forMs` without one. */
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
    const listeners = this.#listening.get(this.#id);
    listeners?.delete(this.#hear);
    if (listeners?.size === 0) this.#listening.delete(this.#id);
  }
}
