import type { ActorCell } from "../../actors/runtime/cell.ts";
import type { Ownership } from "../../actors/runtime/ownership.ts";
import type { webhookActor } from "../../actors/webhook/actor.ts";
import type { Step, WebhookState } from "../../actors/webhook/state.ts";
import type { Lease } from "../../db/queries/actor-leases.ts";
import type { Clock } from "../lib/clock.ts";
import type { FairSemaphore } from "../lib/fair-share.ts";
import type { AttemptRecord } from "../lib/webhook-record.ts";
import type { SendEvent } from "./send-event.ts";
import type { SendPlace, SendSlot, SendSlots } from "./send-slots.ts";
import type { WebhookSecrets } from "./webhook-secrets.ts";

export type WebhookCell = ActorCell<WebhookState, ReturnType<typeof webhookActor>["verbs"]>;

export interface DeliveryLoopDependencies {
  readonly clock: Clock;
  /** Bounds the webhooks that are being read, shared out by organization. */
  readonly loads: FairSemaphore;
  readonly slots: SendSlots;
  readonly secrets: WebhookSecrets;
  readonly sendEvent: SendEvent;
  readonly ownership: Pick<Ownership, "isHeld">;
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
 * Acts for one webhook while its lease is held: sends the first delivery, writes what became of it, and so
 * on; with nothing left to do it ends. It never has more than one attempt under way.
 */
export class WebhookWorker {
  readonly lease: Lease;
  readonly organizationId: string;
  readonly #cell: WebhookCell;
  readonly #dependencies: DeliveryLoopDependencies;
  #isStopped = false;
  #hasNewEvents = false;
  #isIdle = false;
  #wakeUp: (() => void) | undefined;
  /** For the next attempt. */
  #slot: SendSlot | undefined;
  #unwritten = new Set<Promise<unknown>>();
  #failure: unknown;

  constructor(
    { lease, organizationId }: { readonly lease: Lease; readonly organizationId: string },
    cell: WebhookCell,
    dependencies: DeliveryLoopDependencies,
  ) {
    this.lease = lease;
    this.organizationId = organizationId;
    this.#cell = cell;
    this.#dependencies = dependencies;
  }

  /** There are, or may be, deliveries that it has not read. */
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

  /** True where it has noted that there is nothing to do, and stays for a while. */
  get isIdle(): boolean {
    return this.#isIdle;
  }

  /** Resolves when there is nothing to do, or it was stopped. Rejects where something could not be written. */
  async run(): Promise<void> {
    this.#cell.forget();
    try {
      // A loop before this one may have come to its end without being able to load.
      await this.#cancelAttempt();
      let isDone = false;
      while (!isDone && this.#mayGoOn()) isDone = await this.#turn();
    } finally {
      this.#slot?.release();
      await Promise.all(this.#unwritten);
      if (this.#cell.isActive) this.#cell.turn("unload", undefined);
    }
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** True where there is nothing left to do. */
  async #turn(): Promise<boolean> {
    await this.#activate();
    if (!this.#cell.isActive) return false;
    const step = this.#cell.turn("begin", undefined);
    switch (step.kind) {
      case "send":
        await this.#send(step);
        return false;
      case "load":
        this.#hasNewEvents = false;
        this.#cell.forget();
        return false;
      case "wait":
        return this.#wait(step.untilMs);
      case "rest":
        return this.#rest();
    }
  }

  async #activate(): Promise<void> {
    if (this.#cell.isActive) return;
    await this.#dependencies.loads.run(this.organizationId, () => this.#cell.activate());
  }

  async #send({ setting, delivery }: Step & { kind: "send" }): Promise<void> {
    const { secrets, sendEvent, clock } = this.#dependencies;
    const place = { organizationId: setting.organizationId, host: hostOf(setting.url) };
    const slot = this.#takeSlot(place);
    if (slot instanceof Promise) {
      // Thousands may wait for receivers that are slow: meanwhile what they are to send is not kept.
      this.#cell.turn("cancelAttempt", undefined);
      this.#cell.turn("unload", undefined);
      this.#slot = await slot;
      return;
    }
    let attempt: AttemptRecord;
    try {
      // Nothing may come between this look and the sending.
      if (!this.#mayGoOn() || !this.#cell.isActive) return await this.#cancelAttempt();
      const keys = secrets.signing(setting.sealed, clock.nowMs());
      attempt = await sendEvent({ url: setting.url, secrets: keys }, delivery);
    } finally {
      slot.release();
    }
    const written = this.#cell.ask("end", { attempt, lease: this.lease });
    if (attempt.error === null) await this.#writeBehind(written);
    else await written;
  }

  /** The one that was waited for, unless the webhook leads elsewhere by now. */
  #takeSlot(place: SendPlace): SendSlot | Promise<SendSlot> {
    const held = this.#slot;
    this.#slot = undefined;
    if (held?.place.host === place.host) return held;
    held?.release();
    return this.#dependencies.slots.take(place);
  }

  async #cancelAttempt(): Promise<void> {
    await this.#activate();
    if (this.#cell.isActive) this.#cell.turn("cancelAttempt", undefined);
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

  /** From the moment it is noted that nothing is due, what comes into sight makes it due again. */
  async #rest(): Promise<boolean> {
    this.#releaseSlot();
    if (this.#hasNewEvents) {
      this.#hasNewEvents = false;
      this.#cell.forget();
      return false;
    }
    await this.#cell.ask("rest", this.lease);
    if (this.#hasNewEvents || !this.#cell.isActive || !this.#mayGoOn()) return false;
    this.#isIdle = true;
    await this.#pause(LINGER_MS);
    this.#isIdle = false;
    return !this.#hasNewEvents && this.#cell.isActive;
  }

  /** A delivery that is to be sent again long from now is found again when its time has come. */
  async #wait(untilMs: number): Promise<boolean> {
    this.#releaseSlot();
    const delayMs = untilMs - this.#dependencies.clock.nowMs();
    if (delayMs > LINGER_MS) return true;
    await this.#pause(Math.max(0, delayMs));
    return false;
  }

  #releaseSlot(): void {
    this.#slot?.release();
    this.#slot = undefined;
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
    return (
      !this.#isStopped &&
      this.#failure === undefined &&
      this.#dependencies.ownership.isHeld(this.lease)
    );
  }
}

/** Anything else was refused when it was set. */
function hostOf(url: string): string {
  return URL.parse(url)?.host ?? url;
}
