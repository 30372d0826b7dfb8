import type { Environment } from "../config/environment.ts";

/**
 * `bun run` hands on what it receives. A signal to the whole group, such as Ctrl-C, so comes twice under it:
 * what follows the first one so soon is its echo.
 */
const ECHO_MS = 500;

/**
 * SIGTERM and SIGINT, from the first moment of the process on. While it starts, a signal is noted, and
 * the start ends itself at the next point where everything begun can be undone; once it serves, a signal
 * stops it. A second one does not wait for either.
 */
export class StopSignals {
  readonly #onSignal: (signal: string) => void;
  readonly #echoMs: number;
  #received: string | undefined;
  #receivedAtMs = 0;
  #stop: (() => void) | undefined;

  /** `onSignal` is told of the first signal. */
  constructor(onSignal: (signal: string) => void, environment: Environment) {
    this.#onSignal = onSignal;
    this.#echoMs = environment.npm_lifecycle_event === undefined ? 0 : ECHO_MS;
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
    const nowMs = performance.now();
    if (this.#received !== undefined) {
      if (nowMs - this.#receivedAtMs < this.#echoMs) return;
      process.exit(1);
    }
    this.#received = signal;
    this.#receivedAtMs = nowMs;
    this.#onSignal(signal);
    this.#stop?.();
  }
}
