import type { Process } from "./process.ts";
import type { World } from "./world.ts";

/** The network between one process and a server: whole, or parted, when everything on it waits. */
export class Link {
  isParted = false;
  readonly world: World;
  readonly process: Process;
  #waiting: (() => void)[] = [];

  constructor(world: World, process: Process) {
    this.world = world;
    this.process = process;
  }

  part(): void {
    this.isParted = true;
  }

  heal(): void {
    this.isParted = false;
    for (const deliver of this.#waiting.splice(0)) this.world.after(0, "healed", deliver);
  }

  whenWhole(deliver: () => void): void {
    this.#waiting.push(deliver);
  }

  travelMs(): number {
    return this.world.random.delay(0.3, 15);
  }
}

/** One direction of one connection: what is sent arrives in order, or, once it is broken, not at all. */
export class Channel {
  readonly #link: Link;
  /** At whose end it arrives; undefined for the server's. */
  readonly #to: Process | undefined;
  #lastArrivalMs = 0;
  #isBroken = false;

  constructor(link: Link, to: Process | undefined) {
    this.#link = link;
    this.#to = to;
  }

  send(label: string, deliver: () => void): void {
    const { world } = this.#link;
    const arrivalMs = Math.max(this.#lastArrivalMs, world.nowMs + this.#link.travelMs());
    this.#lastArrivalMs = arrivalMs;
    this.#deliverAt(arrivalMs - world.nowMs, label, deliver);
  }

  break(): void {
    this.#isBroken = true;
  }

  #deliverAt(delayMs: number, label: string, deliver: () => void): void {
    this.#link.world.after(
      delayMs,
      label,
      () => {
        if (this.#isBroken) return;
        if (!this.#link.isParted) return deliver();
        this.#link.whenWhole(() => this.#deliverAt(0, label, deliver));
      },
      this.#to,
    );
  }
}
