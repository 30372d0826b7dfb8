import type { ActorCell } from "../../actors/runtime/cell.ts";
import { OwnedRun } from "../../actors/runtime/owned-runs.ts";
import type { Ownership } from "../../actors/runtime/ownership.ts";
import type { webhookActor } from "../../actors/webhook/actor.ts";
import type { Step, WebhookState } from "../../actors/webhook/state.ts";
import type { Lease } from "../../db/queries/actor-leases.ts";
import type { Clock } from "../lib/clock.ts";
import type { FairSemaphore } from "../lib/fair-share.ts";
import type { AttemptRecord } from "../lib/webhook-record.ts";
import type { SendEvent } from "./send-event.ts";
import type { SendSlot, SendSlots, SendTarget } from "./send-slots.ts";
import type { WebhookSecrets } from "./webhook-secrets.ts";

export type WebhookCell = ActorCell<WebhookState, ReturnType<typeof webhookActor>["verbs"]>;

export interface DeliveryLoopDependencies {
  readonly clock: Clock;
  /** Limits concurrent reads of webhooks; organizations share them. */
  readonly loads: FairSemaphore;
  readonly slots: SendSlots;
  readonly secrets: WebhookSecrets;
  readonly sendEvent: SendEvent;
  readonly ownership: Pick<Ownership, "isHeld">;
}

/** Time that a webhook without pending deliveries stays with its owner. */
const LINGER_MS = 5_000;
/**
 * Most successful deliveries whose result is not durable when the next delivery is sent. The receiver has them,
 * so the order holds even if this process crashes, but the receiver gets them a second time. All other ends of a
 * delivery are durable before the next delivery is sent.
 */
const MAX_UNWRITTEN_SUCCESSES = 16;

/**
 * Sends one webhook's deliveries while this instance holds its lease: sends the first delivery, writes the
 * result, and continues with the next one. It ends when no delivery is pending, and runs at most one attempt at a
 * time.
 */
export class WebhookWorker extends OwnedRun {
  override readonly organizationId: string;
  readonly #cell: WebhookCell;
  readonly #dependencies: DeliveryLoopDependencies;
  #hasNewEvents = false;
  #isIdle = false;
  #wakeUp: (() => void) | undefined;
  /** The slot for the next attempt. */
  #slot: SendSlot | undefined;
  #unwritten = new Set<Promise<unknown>>();
  #failure: unknown;

  constructor(
    lease: Lease,
    organizationId: string,
    cell: WebhookCell,
    dependencies: DeliveryLoopDependencies,
  ) {
    super(lease);
    this.organizationId = organizationId;
    this.#cell = cell;
    this.#dependencies = dependencies;
  }

  /** Called when there are, or can be, unread deliveries. */
  noteEvents(): void {
    this.#hasNewEvents = true;
    this.#wakeUp?.();
  }

  /** Called when the webhook was changed. */
  noteChange(): void {
    this.#cell.forget();
    this.#wakeUp?.();
  }

  /** Stops the worker. A running attempt ends first. */
  override abandon(): void {
    super.abandon();
    this.#wakeUp?.();
  }

  /** True if the worker has recorded that no delivery is pending, and waits for a while. */
  get isIdle(): boolean {
    return this.#isIdle;
  }

  /** Runs until no delivery is pending or the worker is stopped. Rejects if a result could not be written. */
  async run(): Promise<void> {
    this.#cell.forget();
    try {
      // An earlier worker may have ended without being able to load the webhook.
      await this.#cancelAttempt();
      let isDone = false;
      while (!isDone && this.#mayContinue()) isDone = await this.#turn();
    } finally {
      this.#slot?.release();
      await Promise.all(this.#unwritten);
      if (this.#cell.isActive) this.#cell.turn("unload", undefined);
    }
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Runs the next step. Returns true if no delivery is pending. */
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
    const target = { organizationId: setting.organizationId, host: hostOf(setting.url) };
    const slot = this.#takeSlot(target);
    if (slot instanceof Promise) {
      // Thousands of webhooks can wait for slow receivers. Their deliveries are not held in memory in the
      // meantime.
      this.#cell.turn("cancelAttempt", undefined);
      this.#cell.turn("unload", undefined);
      this.#slot = await slot;
      return;
    }
    let attempt: AttemptRecord;
    try {
      // There must be no await between this check and the request.
      if (!this.#mayContinue() || !this.#cell.isActive) return await this.#cancelAttempt();
      const keys = secrets.signing(setting.sealed, clock.nowMs());
      attempt = await sendEvent({ url: setting.url, secrets: keys }, delivery);
    } finally {
      slot.release();
    }
    const written = this.#cell.ask("end", { attempt, lease: this.lease });
    if (attempt.error === null) await this.#writeInBackground(written);
    else await written;
  }

  /**
   * Returns the slot that was reserved while waiting, unless the webhook's host has changed since. Otherwise
   * takes a slot.
   */
  #takeSlot(target: SendTarget): SendSlot | Promise<SendSlot> {
    const held = this.#slot;
    this.#slot = undefined;
    if (held?.target.host === target.host) return held;
    held?.release();
    return this.#dependencies.slots.take(target);
  }

  async #cancelAttempt(): Promise<void> {
    await this.#activate();
    if (this.#cell.isActive) this.#cell.turn("cancelAttempt", undefined);
  }

  async #writeInBackground(written: Promise<unknown>): Promise<void> {
    const recorded = written.then(
      () => {},
      (error) => {
        this.#failure ??= error;
      },
    );
    this.#unwritten.add(recorded);
    void recorded.then(() => this.#unwritten.delete(recorded));
    if (this.#unwritten.size >= MAX_UNWRITTEN_SUCCESSES) await Promise.race(this.#unwritten);
  }

  /**
   * Records that no delivery is due, so that new deliveries make the webhook due again. Then waits for new
   * deliveries.
   */
  async #rest(): Promise<boolean> {
    this.#releaseSlot();
    if (this.#hasNewEvents) {
      this.#hasNewEvents = false;
      this.#cell.forget();
      return false;
    }
    await this.#cell.ask("rest", this.lease);
    if (this.#hasNewEvents || !this.#cell.isActive || !this.#mayContinue()) return false;
    this.#isIdle = true;
    await this.#pause(LINGER_MS);
    this.#isIdle = false;
    return !this.#hasNewEvents && this.#cell.isActive;
  }

  /** Waits for a retry that is due soon. A later retry is found again when it is due. */
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

  #mayContinue(): boolean {
    return (
      !this.abandoned.aborted &&
      this.#failure === undefined &&
      this.#dependencies.ownership.isHeld(this.lease)
    );
  }
}

/** Returns the host of a URL, which was validated when it was set. */
function hostOf(url: string): string {
  return URL.parse(url)?.host ?? url;
}
