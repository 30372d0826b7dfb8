import type { Ownership } from "../../../actors/runtime/ownership/interface.ts";
import type { OwnedKind } from "../../../actors/runtime/ownership/unowned-work.ts";
import type { ActorRegistry } from "../../../actors/runtime/registry.ts";
import type { webhookActor } from "../../../actors/webhook/actor.ts";
import type { WebhookState } from "../../../actors/webhook/state.ts";
import type { Database } from "../../../db/client.ts";
import { type Lease, LeaseLostError } from "../../../db/queries/actor-leases.ts";
import {
  type EventSnapshot,
  findUnnumbered,
  findWebhookWork,
} from "../../../db/queries/webhook-work.ts";
import type { Clock } from "../../lib/clock.ts";
import { doneInTime } from "../../lib/done-in-time.ts";
import { EVENT_TYPES } from "../../lib/event-types.ts";
import { DeliveryLoop } from "./delivery-loop.ts";
import type { SendEvent } from "./send-event.ts";
import type { SendSlots } from "./send-slots.ts";
import type { WebhookSecrets } from "./webhook-secrets.ts";

export type WebhookActors = ActorRegistry<WebhookState, ReturnType<typeof webhookActor>["verbs"]>;

export interface DeliveriesDependencies {
  readonly sql: Database;
  readonly instanceId: string;
  readonly actors: WebhookActors;
  readonly ownership: Ownership;
  readonly slots: SendSlots;
  readonly secrets: WebhookSecrets;
  readonly sendEvent: SendEvent;
  readonly clock: Clock;
  /** Looks for work of all kinds that nobody does. */
  sweep(): Promise<void>;
  /** Tells the instance that acts for a webhook, if it is another one, that there is something to do. */
  wakeOwner(webhookId: string): void;
  onError(error: unknown): void;
}

/** Between two looks that remember nothing, which find what everything else has missed. */
const FULL_LOOK_MS = 300_000;
/** After a failure to read or write, before a webhook is given back to whoever takes it up. */
const FAILURE_PAUSE_MS = 500;
/** Calls to look now that come closer together than this share one look. */
const MIN_LOOK_INTERVAL_MS = 20;

/** Delivers events to webhooks: finds those with something to do, and acts for those that it owns. */
export class Deliveries implements OwnedKind {
  readonly kind = "webhook";
  readonly #dependencies: DeliveriesDependencies;
  readonly #loops = new Map<
    string,
    { readonly loop: DeliveryLoop; readonly ended: Promise<void> }
  >();
  /** With new events and, when last looked at, without an owner. */
  readonly #remembered = new Set<string>();
  #snapshot: EventSnapshot | undefined;
  #fullLookAtMs = Number.NEGATIVE_INFINITY;
  #lookDue: Promise<void> | undefined;
  #isStopped = false;

  constructor(dependencies: DeliveriesDependencies) {
    this.#dependencies = dependencies;
    dependencies.ownership.onLost((lease) => {
      if (lease.kind === this.kind) this.#loopOf(lease)?.stop();
    });
  }

  /** Webhooks that this instance acts for. */
  get size(): number {
    return this.#loops.size;
  }

  /** Events were, or may have been, emitted: looks soon. */
  nudge(): void {
    if (this.#isStopped) return;
    this.#lookDue ??= new Promise<void>((resolve) => {
      this.#dependencies.clock.after(MIN_LOOK_INTERVAL_MS, resolve);
    }).then(() => {
      this.#lookDue = undefined;
      return this.#dependencies.sweep();
    });
  }

  /** A webhook was changed or deleted, here or elsewhere. */
  changed(webhookId: string): void {
    this.#loops.get(webhookId)?.loop.noteChange();
    this.nudge();
  }

  /** News may have been missed. */
  changedAll(): void {
    for (const { loop } of this.#loops.values()) loop.noteChange();
    this.#snapshot = undefined;
    this.nudge();
  }

  /** Somebody saw events of a webhook that may be acted for here. */
  wake(webhookId: string): void {
    this.#loops.get(webhookId)?.loop.noteEvents();
  }

  noteNumbered(webhookId: string, isMore: boolean): void {
    if (isMore) this.wake(webhookId);
  }

  async findWork(limit: number): Promise<readonly string[]> {
    try {
      if (this.#snapshot === undefined || this.#isFullLookDue()) await this.#lookAtAll();
      const work = await findWebhookWork(this.#dependencies.sql, {
        since: this.#snapshot!,
        remembered: [...this.#remembered],
        limit,
      });
      for (const id of work.fresh) this.#remembered.add(id);
      for (const { id, instanceId } of work.owned) this.#tellOwner(id, instanceId);
      this.#snapshot = work.snapshot;
      return work.unowned;
    } catch (error) {
      // A database that came back may count transactions differently.
      this.#snapshot = undefined;
      throw error;
    }
  }

  start(lease: Lease): void {
    this.#remembered.delete(lease.id);
    if (this.#isStopped) return void this.#release(lease);
    const { actors, ownership } = this.#dependencies;
    const before = this.#loops.get(lease.id);
    before?.loop.stop();
    const loop = new DeliveryLoop(lease, actors.get(lease.id), {
      ...this.#dependencies,
      isHeld: (held) => ownership.isHeld(held),
    });
    const ended = (before?.ended ?? Promise.resolve())
      .then(() => loop.run())
      .then(
        () => this.#ended(loop, undefined),
        (error) => this.#ended(loop, error),
      );
    this.#loops.set(lease.id, { loop, ended });
  }

  /** Sends nothing more, and waits for what is under way. */
  async stop(withinMs: number): Promise<void> {
    this.#isStopped = true;
    const loops = [...this.#loops.values()];
    for (const { loop } of loops) loop.stop();
    const ended = Promise.all(loops.map((one) => one.ended));
    await doneInTime(ended, this.#dependencies.clock, withinMs);
  }

  #isFullLookDue(): boolean {
    return this.#dependencies.clock.nowMs() - this.#fullLookAtMs >= FULL_LOOK_MS;
  }

  async #lookAtAll(): Promise<void> {
    const { ids, snapshot } = await findUnnumbered(this.#dependencies.sql, EVENT_TYPES);
    for (const id of ids) this.#remembered.add(id);
    this.#snapshot = snapshot;
    this.#fullLookAtMs = this.#dependencies.clock.nowMs();
  }

  #tellOwner(webhookId: string, instanceId: string): void {
    const own = this.#loops.get(webhookId);
    if (own === undefined && instanceId === this.#dependencies.instanceId) {
      // It is being given back, and has not seen these events.
      this.#remembered.add(webhookId);
      return;
    }
    this.#remembered.delete(webhookId);
    if (own !== undefined) own.loop.noteEvents();
    else this.#dependencies.wakeOwner(webhookId);
  }

  #loopOf(lease: Lease): DeliveryLoop | undefined {
    const loop = this.#loops.get(lease.id)?.loop;
    return loop?.lease.epoch === lease.epoch ? loop : undefined;
  }

  async #ended(loop: DeliveryLoop, error: unknown): Promise<void> {
    const { lease } = loop;
    const { clock, onError } = this.#dependencies;
    if (error !== undefined && !(error instanceof LeaseLostError)) {
      if (!this.#isStopped) onError(error);
      await new Promise<void>((resolve) => clock.after(FAILURE_PAUSE_MS, resolve));
    }
    if (this.#loops.get(lease.id)?.loop === loop) {
      this.#loops.delete(lease.id);
      // What was seen between its last look and its end is for whoever acts next.
      if (loop.hasNewEvents || error !== undefined) this.#remembered.add(lease.id);
    }
    // Also past the lease of this instance, which may live on: nobody else takes what the living own.
    await this.#release(lease);
  }

  async #release(lease: Lease): Promise<void> {
    try {
      await this.#dependencies.ownership.release([lease]);
    } catch (error) {
      this.#dependencies.onError(error);
    }
  }
}
