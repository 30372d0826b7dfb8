import {
  type Database,
  isConnectionFailure,
  isOutcomeUnknown,
  isServerUnable,
  sqlState,
} from "../../db/client.ts";
import { TRANSIENT_STATES, UNIQUE_VIOLATION } from "../../db/error-states.ts";
import type { Effect } from "../../db/ledger/effects.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { type Lease, LeaseLostError } from "../../db/queries/actor-leases.ts";
import {
  commitDeliveries,
  type DeliveryChange,
  deliveryChange,
} from "../../db/queries/deliveries.ts";
import { systemClock } from "../lib/clock.ts";
import { finishesWithin } from "../lib/deadlines.ts";
import { FairQueue } from "../lib/fair-share.ts";

export interface DeliveryWriterDependencies {
  /** A separate connection, so that commits of deliveries do not wait for other queries. */
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  /** Called for a lease that was lost. Must not throw. */
  onLost(lease: Lease): void;
}

interface Waiting {
  readonly changes: readonly DeliveryChange[];
  resolve(): void;
  reject(error: unknown): void;
}

const MAX_BATCH = 512;
const RETRY_DELAY_MS = 50;
/**
 * SQLSTATEs of conflicts that a retry resolves: with other writers, or with an earlier try that was still
 * running.
 */
const REPEATABLE_STATES = new Set([...TRANSIENT_STATES, UNIQUE_VIOLATION]);
/** query_canceled: the statement exceeded its time limit. */
const TIMED_OUT = "57014";

/**
 * Writes the decisions of webhook owners, for many webhooks in one commit. Decisions that arrive during a commit
 * go into the next one, and organizations share it equally. Each owned webhook has at most one write in the
 * queue, plus its few unwritten results.
 */
export class DeliveryWriter {
  readonly #dependencies: DeliveryWriterDependencies;
  readonly #queue = new FairQueue<Waiting>();
  #running: Promise<void> | undefined;
  #isClosed = false;

  constructor(dependencies: DeliveryWriterDependencies) {
    this.#dependencies = dependencies;
  }

  /** Writes changes. Resolves when they are durable. Rejects with LeaseLostError if nothing was written. */
  submit(effects: readonly Effect[]): Promise<void> {
    if (this.#isClosed) return Promise.reject(new Error("the delivery writer is closed"));
    return new Promise((resolve, reject) => {
      const changes = effects.map(deliveryChange);
      this.#queue.push(changes[0]?.organizationId ?? "", { changes, resolve, reject });
      this.#running ??= Promise.resolve()
        .then(() => this.#pump())
        .finally(() => {
          this.#running = undefined;
        });
    });
  }

  /**
   * Writes queued changes within the time, then closes the writer. If the database is out of reach, the next
   * owner sends the deliveries again.
   */
  async close(withinMs: number): Promise<void> {
    if (this.#running) await finishesWithin(this.#running, systemClock, withinMs);
    this.#isClosed = true;
  }

  async #pump(): Promise<void> {
    while (this.#queue.size > 0) {
      const batch: Waiting[] = [];
      while (batch.length < MAX_BATCH && this.#queue.size > 0) batch.push(this.#queue.shift()!);
      await this.#write(batch);
    }
  }

  async #write(batch: readonly Waiting[]): Promise<void> {
    const { sql, instance } = this.#dependencies;
    const changes = batch.flatMap((waiting) => waiting.changes);
    for (;;) {
      try {
        const lost = await commitDeliveries(sql, instance, changes);
        for (const waiting of batch) this.#settle(waiting, lost);
        return;
      } catch (error) {
        const isUnable = isServerUnable(error);
        const isRetryable =
          isUnable || isOutcomeUnknown(error) || REPEATABLE_STATES.has(stateOf(error));
        if (!isRetryable || this.#isClosed) {
          if (batch.length === 1 || this.#isClosed) {
            for (const waiting of batch) waiting.reject(error);
            return;
          }
          // A change that cannot be written must not fail the others.
          for (const waiting of batch) await this.#write([waiting]);
          return;
        }
        if (sqlState(error) === TIMED_OUT && batch.length > 1) {
          const middle = batch.length >> 1;
          await this.#write(batch.slice(0, middle));
          await this.#write(batch.slice(middle));
          return;
        }
        await Bun.sleep(isUnable || isConnectionFailure(error) ? RETRY_DELAY_MS : 1);
      }
    }
  }

  #settle({ changes, resolve, reject }: Waiting, lost: ReadonlySet<string>): void {
    const lease = changes.find((change) => lost.has(change.lease.id))?.lease;
    if (lease === undefined) {
      resolve();
      return;
    }
    this.#dependencies.onLost(lease);
    reject(new LeaseLostError(lease));
  }
}

function stateOf(error: unknown): string {
  return String((error as { code?: unknown } | null)?.code ?? "");
}
