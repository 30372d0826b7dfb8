import type { Clock } from "../../src/lib/clock.ts";
import type { World } from "./world.ts";

/**
 * A process of the gateway: running, paused (as by SIGSTOP: nothing of it happens, everything waits for
 * it), or gone (as by SIGKILL: nothing of it ever happens again).
 */
export class Process {
  readonly name: string;
  readonly clock: Clock;
  isPaused = false;
  isGone = false;
  readonly #world: World;
  #held: (() => void)[] = [];
  readonly #whenGone: (() => void)[] = [];

  constructor(world: World, name: string) {
    this.#world = world;
    this.name = name;
    this.clock = {
      nowMs: () => Math.floor(world.nowMs),
      after: (delayMs, run) => world.after(delayMs, "timer", run, this),
    };
  }

  /** An event of this process. */
  after(delayMs: number, label: string, run: () => void): () => void {
    return this.#world.after(delayMs, label, run, this);
  }

  whenResumed(goOn: () => void): void {
    this.#held.push(goOn);
  }

  pause(): void {
    this.isPaused = true;
  }

  resume(): void {
    if (!this.isPaused) return;
    this.isPaused = false;
    for (const goOn of this.#held.splice(0)) goOn();
  }

  onGone(run: () => void): void {
    this.#whenGone.push(run);
  }

  kill(): void {
    if (this.isGone) return;
    this.isGone = true;
    this.#held = [];
    for (const run of this.#whenGone) run();
  }
}
