import type { OwnedKind, Ownership, UnownedWork } from "../../actors/runtime/ownership.ts";
import type { ActorRegistry } from "../../actors/runtime/registry.ts";
import type { webhookActor } from "../../actors/webhook/actor.ts";
import type { WebhookState } from "../../actors/webhook/state.ts";
import type { Database } from "../../db/client.ts";
import { type Lease, LeaseLostError } from "../../db/queries/actor-leases.ts";
import { findDueAmong, findDueWebhooks } from "../../db/queries/webhooks.ts";
import type { Clock } from "../lib/clock.ts";
import { finishesWithin } from "../lib/deadlines.ts";
import type { FairSemaphore } from "../lib/fair-share.ts";
import type { Wakes } from "../platform/cluster/interface.ts";
import type { SendEvent } from "./send-event.ts";
import type { SendSlots } from "./send-slots.ts";
import type { WebhookSecrets } from "./webhook-secrets.ts";
import { WebhookWorker } from "./webhook-worker.ts";

export type WebhookActors = ActorRegistry<WebhookState, ReturnType<typeof webhookActor>["verbs"]>;

export interface DeliveriesDependencies {
  readonly sql: Database;
  readonly instanceId: string;
  readonly actors: WebhookActors;
  readonly ownership: Ownership;
  readonly loads: FairSemaphore;
  readonly slots: SendSlots;
  readonly secrets: WebhookSecrets;
  readonly sendEvent: SendEvent;
  readonly clock: Clock;
  readonly unowned: Pick<UnownedWork, "register" | "sweep">;
  /** Undefined: owners find events of other instances within a second. */
  readonly wakes: Wakes | undefined;
  onError(error: unknown): void;
}

/** Time between two full searches, which find webhooks without a notification. */
const FULL_LOOK_MS = 900;
/** Pause after a read or write failure, before the webhook is released to another owner. */
const FAILURE_PAUSE_MS = 500;
/** Search requests within this time share one search. */
const MIN_LOOK_INTERVAL_MS = 20;
/** Most organizations that one statement reads. */
const MAX_ORGANIZATIONS = 256;
/** Most statements of one full search. */
const MAX_STATEMENTS_A_LOOK = 20;
/** Most notified webhooks in memory. The next full search finds the others. */
const MAX_PENDING = 10_000;
const MAX_PENDING_A_STATEMENT = 1_000;
/**
 * Most webhooks without an owner about which other instances are notified at a time. Their searches find the
 * others.
 */
const MAX_WAKES_A_TURN = 256;
/**
 * Most webhooks that one instance owns. An organization has at most a quarter of them, and a few in any case, so
 * that other organizations' webhooks cannot exclude its own.
 */
export const MAX_WEBHOOKS_ACTED_FOR = 8_000;
const FEW_WEBHOOKS = 4;

/**
 * Delivers events to webhooks: finds webhooks with pending deliveries, and runs a worker for each one that this
 * instance owns.
 */
export class WebhookDispatcher implements OwnedKind {
  readonly kind = "webhook";
  readonly #dependencies: DeliveriesDependencies;
  readonly #loops = new Map<
    string,
    { readonly loop: WebhookWorker; readonly ended: Promise<void> }
  >();
  /** Number of workers per organization. */
  readonly #workerCounts = new Map<string, number>();
  /** Webhooks that can have pending deliveries and no owner. */
  readonly #pending = new Set<string>();
  /** Organizations of the webhooks that the last search found. */
  #organizations = new Map<string, string>();
  #fullLookAtMs = Number.NEGATIVE_INFINITY;
  #lookDue: Promise<void> | undefined;
  readonly #stopListening: (() => void) | undefined;
  #isStopped = false;

  constructor(dependencies: DeliveriesDependencies) {
    this.#dependencies = dependencies;
    dependencies.unowned.register(this);
    this.#stopListening = dependencies.wakes?.onWake(this.kind, (id) => this.#wake(id));
    dependencies.ownership.onLost((lease) => {
      if (lease.kind === this.kind) this.#loopOf(lease)?.stop();
    });
  }

  /** Number of webhooks that this instance owns. */
  get size(): number {
    return this.#loops.size;
  }

  /** Notifies the owners of webhooks for which this instance wrote deliveries. */
  noteSequenced(webhooks: ReadonlyMap<string, string | null>): void {
    let wakes = 0;
    for (const [id, owner] of webhooks) {
      const active = this.#loops.get(id);
      if (active !== undefined) active.loop.noteEvents();
      if (active !== undefined || owner === this.#dependencies.instanceId) continue;
      if (owner === null) this.#request(id);
      if (owner !== null || wakes++ < MAX_WAKES_A_TURN)
        this.#dependencies.wakes?.wake(this.kind, id);
    }
  }

  /** Called after a webhook was changed or deleted, by any instance. */
  changed(webhookId: string): void {
    const active = this.#loops.get(webhookId);
    if (active === undefined) this.#request(webhookId);
    else active.loop.noteChange();
  }

  /** Called when change notifications may have been lost. */
  noteAllChanged(): void {
    for (const { loop } of this.#loops.values()) {
      loop.noteChange();
      loop.noteEvents();
    }
    this.#fullLookAtMs = Number.NEGATIVE_INFINITY;
    this.#lookSoon();
  }

  /** Called when another instance found pending deliveries of a webhook. */
  #wake(webhookId: string): void {
    const active = this.#loops.get(webhookId);
    if (active === undefined) this.#request(webhookId);
    else active.loop.noteEvents();
  }

  async findWork(limit: number): Promise<readonly string[]> {
    const due = new Map<string, string>();
    await this.#findPending(due);
    const nowMs = this.#dependencies.clock.nowMs();
    if (nowMs - this.#fullLookAtMs >= FULL_LOOK_MS) {
      await this.#wakeIdle();
      await this.#findAll(due, limit);
      this.#fullLookAtMs = nowMs;
    }
    this.#organizations = this.#admitted(due);
    return [...this.#organizations.keys()];
  }

  async #findPending(due: Map<string, string>): Promise<void> {
    while (this.#pending.size > 0) {
      const ids = [...this.#pending].slice(0, MAX_PENDING_A_STATEMENT);
      const rows = await findDueAmong(this.#dependencies.sql, ids);
      for (const id of ids) this.#pending.delete(id);
      for (const { id, organizationId, owner } of rows) {
        if (owner === null) due.set(id, organizationId);
        else this.#loops.get(id)?.loop.noteEvents();
      }
    }
  }

  async #findAll(due: Map<string, string>, limit: number): Promise<void> {
    let after: string | undefined = "";
    for (let count = 0; count < MAX_STATEMENTS_A_LOOK && after !== undefined; count++) {
      const look = { after, maxOrganizations: MAX_ORGANIZATIONS, limit };
      const { webhooks, last } = await findDueWebhooks(this.#dependencies.sql, look);
      for (const { id, organizationId } of webhooks) due.set(id, organizationId);
      after = last;
    }
  }

  /** Wakes idle workers whose webhooks have deliveries again, in case no notification arrived. */
  async #wakeIdle(): Promise<void> {
    const idle = [...this.#loops].flatMap(([id, { loop }]) => (loop.isIdle ? id : []));
    for (let first = 0; first < idle.length; first += MAX_PENDING_A_STATEMENT) {
      const ids = idle.slice(first, first + MAX_PENDING_A_STATEMENT);
      const due = await findDueAmong(this.#dependencies.sql, ids);
      for (const { id } of due) this.#loops.get(id)?.loop.noteEvents();
    }
  }

  /** Returns the webhooks for which there is room. */
  #admitted(due: ReadonlyMap<string, string>): Map<string, string> {
    const counts = new Map(this.#workerCounts);
    let total = this.#loops.size;
    const admitted = new Map<string, string>();
    for (const [id, organizationId] of due) {
      const count = counts.get(organizationId) ?? 0;
      const isRoom = total < MAX_WEBHOOKS_ACTED_FOR && count < MAX_WEBHOOKS_ACTED_FOR / 4;
      if (this.#loops.has(id) || (count >= FEW_WEBHOOKS && !isRoom)) continue;
      counts.set(organizationId, count + 1);
      total++;
      admitted.set(id, organizationId);
    }
    return admitted;
  }

  start(lease: Lease): void {
    if (this.#isStopped) return void this.#release(lease);
    const { actors } = this.#dependencies;
    const before = this.#loops.get(lease.id);
    before?.loop.stop();
    const organizationId = this.#organizations.get(lease.id) ?? before?.loop.organizationId ?? "";
    const webhook = { lease, organizationId };
    const loop = new WebhookWorker(webhook, actors.get(lease.id), this.#dependencies);
    const ended = (before?.ended ?? Promise.resolve())
      .then(() => loop.run())
      .then(
        () => this.#ended(loop, undefined),
        (error) => this.#ended(loop, error),
      );
    this.#loops.set(lease.id, { loop, ended });
    if (before !== undefined) this.#count(before.loop, -1);
    this.#count(loop, 1);
  }

  /** Stops all workers and waits for their running attempts. */
  async stop(withinMs: number): Promise<void> {
    this.#isStopped = true;
    this.#stopListening?.();
    const loops = [...this.#loops.values()];
    for (const { loop } of loops) loop.stop();
    const ended = Promise.all(loops.map((entry) => entry.ended));
    await finishesWithin(ended, this.#dependencies.clock, withinMs);
  }

  #request(webhookId: string): void {
    if (this.#pending.size < MAX_PENDING) this.#pending.add(webhookId);
    this.#lookSoon();
  }

  #lookSoon(): void {
    if (this.#isStopped) return;
    this.#lookDue ??= new Promise<void>((resolve) => {
      this.#dependencies.clock.after(MIN_LOOK_INTERVAL_MS, resolve);
    }).then(() => {
      this.#lookDue = undefined;
      return this.#dependencies.unowned.sweep(this.kind);
    });
  }

  #count({ organizationId }: WebhookWorker, change: 1 | -1): void {
    const count = (this.#workerCounts.get(organizationId) ?? 0) + change;
    if (count === 0) this.#workerCounts.delete(organizationId);
    else this.#workerCounts.set(organizationId, count);
  }

  #loopOf(lease: Lease): WebhookWorker | undefined {
    const loop = this.#loops.get(lease.id)?.loop;
    return loop?.lease.epoch === lease.epoch ? loop : undefined;
  }

  async #ended(loop: WebhookWorker, error: unknown): Promise<void> {
    const { lease } = loop;
    const { clock, onError } = this.#dependencies;
    if (error !== undefined && !(error instanceof LeaseLostError)) {
      if (!this.#isStopped) onError(error);
      await new Promise<void>((resolve) => clock.after(FAILURE_PAUSE_MS, resolve));
    }
    const isLast = this.#loops.get(lease.id)?.loop === loop;
    if (isLast) {
      this.#loops.delete(lease.id);
      this.#count(loop, -1);
    }
    // The lease is released even if this instance is past its lease: no other instance can claim what a live one
    // owns.
    await this.#release(lease);
    // Deliveries may have arrived between the worker's last read and its end.
    if (isLast) this.#request(lease.id);
  }

  async #release(lease: Lease): Promise<void> {
    try {
      await this.#dependencies.ownership.release([lease]);
    } catch (error) {
      this.#dependencies.onError(error);
    }
  }
}
