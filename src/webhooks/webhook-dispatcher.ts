import { OwnedRuns } from "../../actors/runtime/owned-runs.ts";
import type { OwnedKind, Ownership, UnownedWork } from "../../actors/runtime/ownership.ts";
import type { ActorRegistry } from "../../actors/runtime/registry.ts";
import type { webhookActor } from "../../actors/webhook/actor.ts";
import type { WebhookState } from "../../actors/webhook/state.ts";
import type { Database } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { type Lease, LeaseLostError } from "../../db/queries/actor-leases.ts";
import { findDueAmong, findDueWebhooks } from "../../db/queries/webhooks.ts";
import { type Clock, sleep } from "../lib/clock.ts";
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
  readonly instance: InstanceIdentity;
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
  readonly #workers: OwnedRuns<WebhookWorker>;
  /** Webhooks that can have pending deliveries and no owner. */
  readonly #pending = new Set<string>();
  #fullLookAtMs = Number.NEGATIVE_INFINITY;
  #lookDue: Promise<void> | undefined;
  readonly #stopListening: (() => void) | undefined;
  #isStopped = false;

  constructor(dependencies: DeliveriesDependencies) {
    this.#dependencies = dependencies;
    this.#workers = new OwnedRuns<WebhookWorker>(dependencies, {
      kind: this.kind,
      begin: (lease, organizationId = "") =>
        new WebhookWorker(lease, organizationId, dependencies.actors.get(lease.id), dependencies),
      work: (worker) => this.#deliver(worker),
      // Deliveries may have arrived between the worker's last read and its end.
      onRoom: ({ lease }) => this.#request(lease.id),
    });
    dependencies.unowned.register(this);
    this.#stopListening = dependencies.wakes?.onWake(this.kind, (id) => this.#wake(id));
  }

  /** Number of webhooks that this instance owns. */
  get size(): number {
    return this.#workers.size;
  }

  /** Notifies the owners of webhooks for which this instance wrote deliveries. */
  noteSequenced(webhooks: ReadonlyMap<string, string | null>): void {
    let wakes = 0;
    for (const [id, owner] of webhooks) {
      const worker = this.#workers.get(id);
      worker?.noteEvents();
      if (worker !== undefined || owner === this.#dependencies.instance.id) continue;
      if (owner === null) this.#request(id);
      if (owner !== null || wakes++ < MAX_WAKES_A_TURN)
        this.#dependencies.wakes?.wake(this.kind, id);
    }
  }

  /** Called after a webhook was changed or deleted, by any instance. */
  changed(webhookId: string): void {
    const worker = this.#workers.get(webhookId);
    if (worker === undefined) this.#request(webhookId);
    else worker.noteChange();
  }

  /** Called when change notifications may have been lost. */
  noteAllChanged(): void {
    for (const worker of this.#workers.all()) {
      worker.noteChange();
      worker.noteEvents();
    }
    this.#fullLookAtMs = Number.NEGATIVE_INFINITY;
    this.#lookSoon();
  }

  /** Called when another instance found pending deliveries of a webhook. */
  #wake(webhookId: string): void {
    const worker = this.#workers.get(webhookId);
    if (worker === undefined) this.#request(webhookId);
    else worker.noteEvents();
  }

  /** Returns the webhooks to act for, with their organizations. */
  async findWork(limit: number): Promise<Map<string, string>> {
    const due = new Map<string, string>();
    await this.#findPending(due);
    const nowMs = this.#dependencies.clock.nowMs();
    if (nowMs - this.#fullLookAtMs >= FULL_LOOK_MS) {
      await this.#wakeIdle();
      await this.#findAll(due, limit);
      this.#fullLookAtMs = nowMs;
    }
    return this.#admitted(due);
  }

  async #findPending(due: Map<string, string>): Promise<void> {
    while (this.#pending.size > 0) {
      const ids = [...this.#pending].slice(0, MAX_PENDING_A_STATEMENT);
      const rows = await findDueAmong(this.#dependencies.sql, ids);
      for (const id of ids) this.#pending.delete(id);
      for (const { id, organizationId, owner } of rows) {
        if (owner === null) due.set(id, organizationId);
        else this.#workers.get(id)?.noteEvents();
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
    const idle: string[] = [];
    for (const { isIdle, lease } of this.#workers.all()) if (isIdle) idle.push(lease.id);
    for (let first = 0; first < idle.length; first += MAX_PENDING_A_STATEMENT) {
      const ids = idle.slice(first, first + MAX_PENDING_A_STATEMENT);
      const due = await findDueAmong(this.#dependencies.sql, ids);
      for (const { id } of due) this.#workers.get(id)?.noteEvents();
    }
  }

  /** Returns the webhooks for which there is room. */
  #admitted(due: ReadonlyMap<string, string>): Map<string, string> {
    const counts = this.#workers.countsByOrganization();
    let total = this.#workers.size;
    const admitted = new Map<string, string>();
    for (const [id, organizationId] of due) {
      const count = counts.get(organizationId) ?? 0;
      const isRoom = total < MAX_WEBHOOKS_ACTED_FOR && count < MAX_WEBHOOKS_ACTED_FOR / 4;
      if (this.#workers.get(id) !== undefined || (count >= FEW_WEBHOOKS && !isRoom)) continue;
      counts.set(organizationId, count + 1);
      total++;
      admitted.set(id, organizationId);
    }
    return admitted;
  }

  start(lease: Lease, organizationId?: string): void {
    this.#workers.start(lease, organizationId);
  }

  /** Stops all workers and waits for their running attempts. */
  async stop(withinMs: number): Promise<void> {
    this.#isStopped = true;
    this.#stopListening?.();
    await finishesWithin(this.#workers.stop(), this.#dependencies.clock, withinMs);
  }

  #request(webhookId: string): void {
    if (this.#pending.size < MAX_PENDING) this.#pending.add(webhookId);
    this.#lookSoon();
  }

  #lookSoon(): void {
    if (this.#isStopped) return;
    this.#lookDue ??= sleep(this.#dependencies.clock, MIN_LOOK_INTERVAL_MS).then(() => {
      this.#lookDue = undefined;
      return this.#dependencies.unowned.sweep(this.kind);
    });
  }

  async #deliver(worker: WebhookWorker): Promise<void> {
    const { clock, onError } = this.#dependencies;
    try {
      await worker.run();
    } catch (error) {
      if (error instanceof LeaseLostError) throw error;
      if (!this.#isStopped) onError(error);
      await sleep(clock, FAILURE_PAUSE_MS);
    }
  }
}
