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
import { WebhookWorker } from "./delivery-loop.ts";
import type { SendEvent } from "./send-event.ts";
import type { SendSlots } from "./send-slots.ts";
import type { WebhookSecrets } from "./webhook-secrets.ts";

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
  /** Undefined: owners find within a second what another instance emitted. */
  readonly wakes: Wakes | undefined;
  onError(error: unknown): void;
}

/** Between two queries of everything that is due, which find what was not notified. */
const FULL_LOOK_MS = 900;
/** After a failure to read or write, before a webhook is released to another owner. */
const FAILURE_PAUSE_MS = 500;
/** Calls to look now that come closer together than this share one look. */
const MIN_LOOK_INTERVAL_MS = 20;
/** Organizations that one statement looks at, and statements of one look at everything. */
const MAX_ORGANIZATIONS = 256;
const MAX_STATEMENTS_A_LOOK = 20;
/** Beyond these, a notified webhook is found by the next query of everything. */
const MAX_TOLD = 10_000;
const MAX_TOLD_A_STATEMENT = 1_000;
/** Other instances are notified of so many webhooks without an owner at a time; their queries find the others. */
const MAX_WAKES_A_TURN = 256;
/**
 * Webhooks that one instance acts for. An organization takes up to a quarter of it, and a few in any
 * case: those of others never keep its own from being acted for.
 */
export const MAX_WEBHOOKS_ACTED_FOR = 8_000;
const FEW_WEBHOOKS = 4;

/** Delivers events to webhooks: finds those with something to do, and acts for those that it owns. */
export class WebhookDispatcher implements OwnedKind {
  readonly kind = "webhook";
  readonly #dependencies: DeliveriesDependencies;
  readonly #loops = new Map<
    string,
    { readonly loop: WebhookWorker; readonly ended: Promise<void> }
  >();
  /** Loops of each organization. */
  readonly #loopCounts = new Map<string, number>();
  /** Webhooks that may have something to do and may have no owner. */
  readonly #told = new Set<string>();
  /** Organizations of the webhooks that were found last. */
  #found = new Map<string, string>();
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

  /** Webhooks that this instance acts for. */
  get size(): number {
    return this.#loops.size;
  }

  /** This instance wrote deliveries: the owners of these webhooks send them now. */
  noteNumbered(webhooks: ReadonlyMap<string, string | null>): void {
    let wakes = 0;
    for (const [id, owner] of webhooks) {
      const own = this.#loops.get(id);
      if (own !== undefined) own.loop.noteEvents();
      if (own !== undefined || owner === this.#dependencies.instanceId) continue;
      if (owner === null) this.#tell(id);
      if (owner !== null || wakes++ < MAX_WAKES_A_TURN)
        this.#dependencies.wakes?.wake(this.kind, id);
    }
  }

  /** A webhook was changed or deleted, here or elsewhere. */
  changed(webhookId: string): void {
    const own = this.#loops.get(webhookId);
    if (own === undefined) this.#tell(webhookId);
    else own.loop.noteChange();
  }

  /** News may have been missed. */
  changedAll(): void {
    for (const { loop } of this.#loops.values()) {
      loop.noteChange();
      loop.noteEvents();
    }
    this.#fullLookAtMs = Number.NEGATIVE_INFINITY;
    this.#lookSoon();
  }

  /** Another instance saw that a webhook has something to do. */
  #wake(webhookId: string): void {
    const own = this.#loops.get(webhookId);
    if (own === undefined) this.#tell(webhookId);
    else own.loop.noteEvents();
  }

  async findWork(limit: number): Promise<readonly string[]> {
    const found = new Map<string, string>();
    await this.#findTold(found);
    const nowMs = this.#dependencies.clock.nowMs();
    if (nowMs - this.#fullLookAtMs >= FULL_LOOK_MS) {
      await this.#wakeIdle();
      await this.#findAll(found, limit);
      this.#fullLookAtMs = nowMs;
    }
    this.#found = this.#admitted(found);
    return [...this.#found.keys()];
  }

  async #findTold(found: Map<string, string>): Promise<void> {
    while (this.#told.size > 0) {
      const ids = [...this.#told].slice(0, MAX_TOLD_A_STATEMENT);
      const due = await findDueAmong(this.#dependencies.sql, ids);
      for (const id of ids) this.#told.delete(id);
      for (const { id, organizationId, owner } of due) {
        if (owner === null) found.set(id, organizationId);
        else this.#loops.get(id)?.loop.noteEvents();
      }
    }
  }

  async #findAll(found: Map<string, string>, limit: number): Promise<void> {
    let after: string | undefined = "";
    for (let count = 0; count < MAX_STATEMENTS_A_LOOK && after !== undefined; count++) {
      const look = { after, maxOrganizations: MAX_ORGANIZATIONS, limit };
      const { webhooks, last } = await findDueWebhooks(this.#dependencies.sql, look);
      for (const { id, organizationId } of webhooks) found.set(id, organizationId);
      after = last;
    }
  }

  /** Those that have come to rest and were not told that there is something to do again. */
  async #wakeIdle(): Promise<void> {
    const idle = [...this.#loops].flatMap(([id, { loop }]) => (loop.isIdle ? id : []));
    for (let first = 0; first < idle.length; first += MAX_TOLD_A_STATEMENT) {
      const ids = idle.slice(first, first + MAX_TOLD_A_STATEMENT);
      const due = await findDueAmong(this.#dependencies.sql, ids);
      for (const { id } of due) this.#loops.get(id)?.loop.noteEvents();
    }
  }

  /** Of what was found, what there is room for. */
  #admitted(found: ReadonlyMap<string, string>): Map<string, string> {
    const counts = new Map(this.#loopCounts);
    let total = this.#loops.size;
    const admitted = new Map<string, string>();
    for (const [id, organizationId] of found) {
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
    const organizationId = this.#found.get(lease.id) ?? before?.loop.organizationId ?? "";
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

  /** Sends nothing more, and waits for what is under way. */
  async stop(withinMs: number): Promise<void> {
    this.#isStopped = true;
    this.#stopListening?.();
    const loops = [...this.#loops.values()];
    for (const { loop } of loops) loop.stop();
    const ended = Promise.all(loops.map((one) => one.ended));
    await finishesWithin(ended, this.#dependencies.clock, withinMs);
  }

  #tell(webhookId: string): void {
    if (this.#told.size < MAX_TOLD) this.#told.add(webhookId);
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
    const count = (this.#loopCounts.get(organizationId) ?? 0) + change;
    if (count === 0) this.#loopCounts.delete(organizationId);
    else this.#loopCounts.set(organizationId, count);
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
    // Also past the lease of this instance, which may live on: no other instance claims what a live one owns.
    await this.#release(lease);
    // What came between its last look and its end.
    if (isLast) this.#tell(lease.id);
  }

  async #release(lease: Lease): Promise<void> {
    try {
      await this.#dependencies.ownership.release([lease]);
    } catch (error) {
      this.#dependencies.onError(error);
    }
  }
}
