/**
 * SIGTERM and SIGINT, from the first moment of the process on. While it starts, a signal is noted, and
 * the start ends itself at the next point where everything begun can be undone; once it serves, a signal
 * stops it. A second one does not wait for either.
 */
export class StopSignals {
  readonly #onSignal: (signal: string) => void;
  #received: string | undefined;
  #stop: (() => void) | undefined;

  /** `onSignal` is told of the first signal. */
  constructor(onSignal: (signal: string) => void) {
    this.#onSignal = onSignal;
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      process.on(signal, () => this.take(signal));
    }
  }

  /** Throws where the process was told to stop while it starts. */
  assertNone(): void {
    if (this.#received === undefined) return;
    throw new Error(`stopped by ${this.#received} before it was started`);
  }

  /** From now on a signal calls `stop`. */
  handOver(stop: () => void): void {
    this.#stop = stop;
    if (this.#received !== undefined) stop();
  }

  /** Another reason to stop counts as a signal too. */
  take(signal: string): void {
    if (this.#received !== undefined) process.exit(1);
    this.#received = signal;
    this.#onSignal(signal);
    this.#stop?.();
  }
}
