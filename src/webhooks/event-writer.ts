import { type Database, isServerUnable } from "../../db/client.ts";
import { isOutcomeUnknown } from "../../db/ledger/outcome.ts";
import { insertOutboxEvents, type OutboxEvent } from "../../db/queries/outbox.ts";
import { systemClock } from "../lib/clock.ts";
import { doneInTime } from "../lib/done-in-time.ts";

export interface EventWriterDependencies {
  readonly sql: Database;
  /** Events were written. Must not throw. */
  onWritten(): void;
  onError(error: unknown): void;
}

/** While the database is out of reach, events of requests that failed wait here; further ones are lost. */
const MAX_QUEUED_EVENTS = 10_000;
const MAX_BATCH_EVENTS = 500;
const RETRY_DELAY_MS = 250;

/** Writes events that report no change of the database, and so have no transaction to go with. */
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

  /** Writes what is queued, unless that takes too long. */
  async close(withinMs: number): Promise<void> {
    if (this.#running) await doneInTime(this.#running, systemClock, withinMs);
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
          `${this.#lost} events of failed requests were lost while the database was out of reach`,
        ),
      );
      this.#lost = 0;
    }
  }
}
