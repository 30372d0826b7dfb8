import type { ActorCell } from "../../../actors/runtime/cell.ts";
import type { webhookActor } from "../../../actors/webhook/actor.ts";
import type { Step, WebhookState } from "../../../actors/webhook/state.ts";
import type { Lease } from "../../../db/queries/actor-leases.ts";
import type { Clock } from "../../lib/clock.ts";
import type { AttemptRecord } from "../../lib/webhook-record.ts";
import type { SendEvent } from "./send-event.ts";
import type { SendSlots } from "./send-slots.ts";
import type { WebhookSecrets } from "./webhook-secrets.ts";

export type WebhookCell = ActorCell<WebhookState, ReturnType<typeof webhookActor>["verbs"]>;

export interface DeliveryLoopDependencies {
  readonly clock: Clock;
  readonly slots: SendSlots;
  readonly secrets: WebhookSecrets;
  readonly sendEvent: SendEvent;
  /** False once this instance may not act in the name of the lease any more. */
  isHeld(lease: Lease): boolean;
}

/** How long a webhook with nothing to do stays with its owner. */
const LINGER_MS = 5_000;
/**
 * Successes that need not be durable before the next delivery goes out: the receiver has them, so the
 * order holds whatever becomes of this process; they would be received a second time. Everything else
 * that ends a delivery is durable before the next one goes out.
 */
const MAX_UNWRITTEN_SUCCESSES = 16;

/**
 * Acts for one webhook while its lease is held: numbers what is new, sends the first delivery, writes
 * what became of it, and so on; with nothing left to do it ends. It never has more than one attempt
 * under way.
 */
export class DeliveryLoop {
  readonly lease: Lease;
  readonly #cell: WebhookCell;
  readonly #dependencies: DeliveryLoopDependencies;
  #isStopped = false;
  #hasNewEvents = true;
  #wakeUp: (() => void) | undefined;
  #unwritten = new Set<Promise<unknown>>();
  #failure: unknown;

  constructor(lease: Lease, cell: WebhookCell, dependencies: DeliveryLoopDependencies) {
    this.lease = lease;
    this.#cell = cell;
    this.#dependencies = dependencies;
  }

  /** There are, or may be, events without a number. */
  noteEvents(): void {
    this.#hasNewEvents = true;
    this.#wakeUp?.();
  }

  /** The webhook itself was changed. */
  noteChange(): void {
    this.#cell.forget();
    this.#wakeUp?.();
  }

  /** It sends nothing more; an attempt under way comes to its end. */
  stop(): void {
    this.#isStopped = true;
    this.#wakeUp?.();
  }

  get hasNewEvents(): boolean {
    return this.#hasNewEvents;
  }

  /** Resolves when there is nothing to do, or it was stopped. Rejects where something could not be written. */
  async run(): Promise<void> {
    this.#cell.forget();
    try {
      // A loop before this one may have come to its end without being able to load.
      await this.#callOff();
      let isDone = false;
      while (!isDone && this.#mayGoOn()) isDone = await this.#turn();
    } finally {
      await Promise.all(this.#unwritten);
    }
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** True where there is nothing left to do. */
  async #turn(): Promise<boolean> {
    if (!this.#cell.isActive) await this.#cell.activate();
    const step = this.#cell.turn("begin", undefined);
    switch (step.kind) {
      case "send":
        await this.#send(step);
        return false;
      case "load":
        await this.#reload();
        return false;
      case "wait":
        return this.#wait(step.untilMs);
      case "rest":
        return this.#rest();
    }
  }

  async #send({ setting, delivery }: Step & { kind: "send" }): Promise<void> {
    const { slots, secrets, sendEvent, clock } = this.#dependencies;
    const room = slots.take(setting.organizationId);
    if (room !== undefined) await room;
    let attempt: AttemptRecord;
    try {
      // Nothing may come between this look and the sending.
      if (!this.#mayGoOn() || !this.#cell.isActive) return await this.#callOff();
      const keys = secrets.signing(setting.sealed, clock.nowMs());
      attempt = await sendEvent({ url: setting.url, secrets: keys }, delivery);
    } finally {
      slots.give(setting.organizationId);
    }
    const written = this.#cell.ask("end", { attempt, lease: this.lease });
    if (attempt.error === null) await this.#writeBehind(written);
    else await written;
  }

  async #callOff(): Promise<void> {
    if (!this.#cell.isActive) await this.#cell.activate();
    this.#cell.turn("callOff", undefined);
  }

  async #writeBehind(written: Promise<unknown>): Promise<void> {
    const noted = written.then(
      () => {},
      (error) => {
        this.#failure ??= error;
      },
    );
    this.#unwritten.add(noted);
    void noted.then(() => this.#unwritten.delete(noted));
    if (this.#unwritten.size >= MAX_UNWRITTEN_SUCCESSES) await Promise.race(this.#unwritten);
  }

  async #reload(): Promise<void> {
    this.#cell.forget();
    await this.#cell.activate();
  }

  async #rest(): Promise<boolean> {
    if (this.#hasNewEvents) {
      this.#hasNewEvents = false;
      await this.#cell.ask("number", this.lease);
      await this.#reload();
      return false;
    }
    await this.#pause(LINGER_MS);
    if (this.#hasNewEvents || !this.#cell.isActive || !this.#mayGoOn()) return false;
    await this.#cell.ask("rest", this.lease);
    return !this.#hasNewEvents && this.#cell.isActive;
  }

  /** A delivery that is to be sent again long from now is found again when its time has come. */
  async #wait(untilMs: number): Promise<boolean> {
    if (this.#hasNewEvents) return this.#rest();
    const delayMs = untilMs - this.#dependencies.clock.nowMs();
    await this.#pause(Math.min(Math.max(0, delayMs), LINGER_MS));
    return delayMs > LINGER_MS && !this.#hasNewEvents && this.#cell.isActive;
  }

  async #pause(delayMs: number): Promise<void> {
    let cancel = (): void => {};
    await new Promise<void>((resolve) => {
      this.#wakeUp = resolve;
      cancel = this.#dependencies.clock.after(delayMs, resolve);
    });
    cancel();
    this.#wakeUp = undefined;
  }

  #mayGoOn(): boolean {
    return !this.#isStopped && this.#failure === undefined && this.#dependencies.isHeld(this.lease);
  }
}
