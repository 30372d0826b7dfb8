import { type Database, isOutcomeUnknown, isServerUnable } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import {
  type CleaningCursor,
  dropExpiredDeliveries,
  removeOldDeliveries,
  removeOldEvents,
  removeOrphanedDeliveries,
  repairDueTimes,
} from "../../db/queries/deliveries.ts";
import {
  type DeliveryBacklog,
  deliveryBacklog,
  insertOutboxEvents,
  type OutboxEvent,
  sequenceEvents,
} from "../../db/queries/outbox.ts";
import { type Clock, systemClock } from "../lib/clock.ts";
import { finishesWithin } from "../lib/deadlines.ts";
import type { Telemetry } from "../platform/telemetry/interface.ts";

interface EventWriterDependencies {
  readonly sql: Database;
  /** Called when events are written. Must not throw. */
  onWritten(): void;
  onError(error: unknown): void;
}

/** Most events of failed requests that wait while the database is out of reach. Further events are lost. */
const MAX_QUEUED_EVENTS = 10_000;
const MAX_BATCH_EVENTS = 500;
const RETRY_DELAY_MS = 250;

/** Writes events that do not report a change of the database, and so have no transaction. */
export class EventWriter {
  readonly #dependencies: EventWriterDependencies;
  #queue: OutboxEvent[] = [];
  #lost = 0;
  #running: Promise<void> | undefined;
  #isClosed = false;

  constructor(dependencies: EventWriterDependencies) {
    this.#dependencies = dependencies;
  }

  add(event: OutboxEvent): void {
    if (this.#queue.length >= MAX_QUEUED_EVENTS) {
      this.#lost++;
      return;
    }
    this.#queue.push(event);
    this.#running ??= this.#write().finally(() => {
      this.#running = undefined;
    });
  }

  /** Writes queued events within the time, then closes the writer. */
  async close(withinMs: number): Promise<void> {
    if (this.#running) await finishesWithin(this.#running, systemClock, withinMs);
    this.#isClosed = true;
  }

  async #write(): Promise<void> {
    const { sql, onWritten, onError } = this.#dependencies;
    while (this.#queue.length > 0 && !this.#isClosed) {
      const batch = this.#queue.slice(0, MAX_BATCH_EVENTS);
      try {
        await insertOutboxEvents(sql, batch);
      } catch (error) {
        if (isOutcomeUnknown(error) || isServerUnable(error)) {
          await Bun.sleep(RETRY_DELAY_MS);
          continue;
        }
        onError(error);
      }
      this.#queue = this.#queue.slice(batch.length);
      onWritten();
      if (this.#lost === 0) continue;
      onError(
        new Error(
          `${this.#lost} events of failed requests were lost while the database was unavailable`,
        ),
      );
      this.#lost = 0;
    }
  }
}

const BACKLOG_INTERVAL_MS = 5_000;

/** Measures periodically for /metrics how far deliveries are delayed. */
export class BacklogWatch {
  readonly #sql: Database;
  readonly #clock: Clock;
  #backlog: DeliveryBacklog = { oldestUnnumberedSeconds: 0, oldestUndeliveredSeconds: 0 };
  #lookedAtMs = 0;
  #cancel: (() => void) | undefined;
  #isStopped = false;

  constructor(sql: Database, clock: Clock, telemetry: Pick<Telemetry, "gauge">) {
    this.#sql = sql;
    this.#clock = clock;
    telemetry.gauge(
      "gateway_webhook_oldest_unnumbered_seconds",
      "Age of the oldest event that is not assigned to webhooks yet; 0 if there is none.",
      () => this.#ageNow(this.#backlog.oldestUnnumberedSeconds),
    );
    telemetry.gauge(
      "gateway_webhook_oldest_undelivered_seconds",
      "Age of the oldest event that an enabled webhook has not received; 0 if there is none.",
      () => this.#ageNow(this.#backlog.oldestUndeliveredSeconds),
    );
  }

  start(): void {
    this.#cancel = this.#clock.after(BACKLOG_INTERVAL_MS, async () => {
      try {
        this.#backlog = await deliveryBacklog(this.#sql);
        this.#lookedAtMs = this.#clock.nowMs();
      } catch {
        // During an outage, the age of the oldest event continues to grow.
      }
      if (!this.#isStopped) this.start();
    });
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
  }

  #ageNow(seconds: number): number {
    if (seconds === 0) return 0;
    return seconds + Math.max(0, this.#clock.nowMs() - this.#lookedAtMs) / 1_000;
  }
}

interface SequencerDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly clock: Clock;
  /**
   * Called after each turn, with the webhooks that got deliveries and for each the live instance that owns it, or
   * null. It is called per turn so that deliveries are sent while other events are still being sequenced. Must
   * not throw.
   */
  onSequenced(webhooks: ReadonlyMap<string, string | null>): void;
  onError(error: unknown): void;
}

/** Interval of the searches for events that another instance wrote and did not sequence. */
const LOOK_INTERVAL_MS = 1_000;
/** Calls within this time share one search. */
const MIN_LOOK_INTERVAL_MS = 20;
/** Most organizations that one statement serves. */
const MAX_ORGANIZATIONS = 64;
/** Most rows that one statement writes, divided among its organizations. */
const MAX_ROWS = 512;
const MIN_ROWS = 32;

/**
 * Sequences events: assigns them to the webhooks that subscribe to them. It works in bounded turns over all
 * organizations, so that the events of one organization delay the events of other organizations by at most one
 * turn. Any instance can sequence at any time; the database allows one at a time per organization.
 */
export class EventSequencer {
  readonly #dependencies: SequencerDependencies;
  #running: Promise<void> | undefined;
  #isDue = false;
  #isStopped = false;
  #maxRows = MAX_ROWS;
  #cancel: (() => void) | undefined;
  #endPause: (() => void) | undefined;

  constructor(dependencies: SequencerDependencies) {
    this.#dependencies = dependencies;
  }

  start(): void {
    if (this.#isStopped) return;
    this.#cancel?.();
    this.wake();
    this.#cancel = this.#dependencies.clock.after(LOOK_INTERVAL_MS, () => this.start());
  }

  /** Starts sequencing soon, because events were or may have been emitted. */
  wake(): void {
    if (this.#isStopped) return;
    this.#isDue = true;
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
      // Events that came after the last search.
      if (this.#isDue) this.wake();
    });
  }

  /** Begins no further turn, and waits for the current one. */
  async stop(withinMs: number): Promise<void> {
    this.#isStopped = true;
    this.#isDue = false;
    this.#cancel?.();
    this.#endPause?.();
    if (this.#running) await finishesWithin(this.#running, this.#dependencies.clock, withinMs);
  }

  async #run(): Promise<void> {
    const { onError } = this.#dependencies;
    while (this.#isDue && !this.#isStopped) {
      await this.#pause();
      this.#isDue = false;
      try {
        while (!this.#isStopped && (await this.#goRound())) {}
      } catch (error) {
        // The next search tries again.
        if (!this.#isStopped) onError(error);
      }
    }
  }

  /** Waits before a search. `stop` ends the wait early. */
  async #pause(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const cancel = this.#dependencies.clock.after(MIN_LOOK_INTERVAL_MS, resolve);
    this.#endPause = resolve;
    await promise;
    this.#endPause = undefined;
    cancel();
  }

  /** Serves each organization with events once. Returns true if one of them has more. */
  async #goRound(): Promise<boolean> {
    let isMore = false;
    let after: string | undefined = "";
    while (after !== undefined && !this.#isStopped) {
      const turn = await this.#turn(after);
      if (turn.webhooks.size > 0) this.#dependencies.onSequenced(turn.webhooks);
      isMore ||= turn.isMore;
      after = turn.last;
    }
    return isMore;
  }

  async #turn(after: string) {
    const { sql, instance } = this.#dependencies;
    const bounds = { maxOrganizations: MAX_ORGANIZATIONS, maxRows: this.#maxRows };
    try {
      const turn = await sequenceEvents(sql, instance, after, bounds);
      this.#maxRows = Math.min(MAX_ROWS, this.#maxRows * 2);
      return turn;
    } catch (error) {
      // The statement took too long: a slow database gets smaller turns.
      if (isServerUnable(error)) this.#maxRows = Math.max(MIN_ROWS, this.#maxRows / 2);
      throw error;
    }
  }
}

/** Most rows that one statement reads or removes, as far as they can be counted beforehand. */
const MAX_CLEANED_ROWS = 500;
/** Most statements of one kind in one cleanup. The next cleanup continues. */
const MAX_CLEANING_ROUNDS = 200;

/**
 * Removes expired rows in many small statements, so that other webhook queries run between them. Calls
 * `onDropped` with the number of events that were dropped because their webhook is disabled.
 */
export async function cleanWebhooks(
  sql: Database,
  onDropped: (webhookId: string, count: number) => void,
  maxRows = MAX_CLEANED_ROWS,
): Promise<void> {
  await untilLess(maxRows, async () => {
    const dropped = await dropExpiredDeliveries(sql, maxRows);
    for (const [webhookId, count] of dropped) onDropped(webhookId, count);
    return [...dropped.values()].reduce((sum, count) => sum + count, 0);
  });
  await untilLess(maxRows, () => removeOldDeliveries(sql, maxRows));
  await goThrough("", (after) => removeOrphanedDeliveries(sql, after, maxRows));
  await goThrough(0n, (after) => removeOldEvents(sql, after, maxRows));
  await goThrough("", (after) => repairDueTimes(sql, after, maxRows));
}

async function untilLess(most: number, remove: () => Promise<number>): Promise<void> {
  for (let round = 0; round < MAX_CLEANING_ROUNDS; round++) {
    if ((await remove()) < most) return;
  }
}

async function goThrough<Id>(
  first: Id,
  part: (after: Id) => Promise<CleaningCursor<Id>>,
): Promise<void> {
  let after: CleaningCursor<Id> = first;
  for (let round = 0; round < MAX_CLEANING_ROUNDS && after !== undefined; round++) {
    after = await part(after);
  }
}
