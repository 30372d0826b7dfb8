import {
  type Database,
  isConnectionFailure,
  isOutcomeUnknown,
  isServerUnable,
  sqlState,
} from "../../db/client.ts";
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
  /** A connection of its own: commits of deliveries stand behind nothing else. */
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  /** Must not throw. */
  onLost(lease: Lease): void;
}

interface Waiting {
  readonly changes: readonly DeliveryChange[];
  resolve(): void;
  reject(error: unknown): void;
}

const MAX_BATCH = 512;
const RETRY_DELAY_MS = 50;
/** Conflicts that a new try resolves: with other writers, and with an earlier try that was still running. */
const TRANSIENT_STATES = new Set(["40001", "40P01", "55P03", "23505"]);
/** query_canceled: the statement took longer than it may. */
const TIMED_OUT = "57014";

/**
 * Writes what the owners of webhooks decide, of many webhooks in one commit: what queued during the last
 * commit goes into the next, of each organization an equal share. There is at most one write for each owned webhook, and the few results
 * that each may leave unwritten.
 */
export class DeliveryWriter {
  readonly #dependencies: DeliveryWriterDependencies;
  readonly #queue = new FairQueue<Waiting>();
  #running: Promise<void> | undefined;
  #isClosed = false;

  constructor(dependencies: DeliveryWriterDependencies) {
    this.#dependencies = dependencies;
  }

  /** Resolves when it is durable. Rejects with LeaseLostError where nothing was written. */
  submit(effects: readonly Effect[]): Promise<void> {
    if (this.#isClosed) return Promise.reject(new Error("deliveries are written no more"));
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

  /** Writes what is queued. What a database out of reach does not take is sent again by the next owner. */
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
        for (const waiting of batch) this.#tell(waiting, lost);
        return;
      } catch (error) {
        const isUnable = isServerUnable(error);
        const isRetryable =
          isUnable || isOutcomeUnknown(error) || TRANSIENT_STATES.has(stateOf(error));
        if (!isRetryable || this.#isClosed) {
          if (batch.length === 1 || this.#isClosed) {
            for (const waiting of batch) waiting.reject(error);
            return;
          }
          // One that cannot be written must not take the others with it.
          for (const waiting of batch) await this.#write([waiting]);
          return;
        }
        if (sqlState(error) === TIMED_OUT && batch.length > 1) {
          const half = batch.length >> 1;
          await this.#write(batch.slice(0, half));
          await this.#write(batch.slice(half));
          return;
        }
        await Bun.sleep(isUnable || isConnectionFailure(error) ? RETRY_DELAY_MS : 1);
      }
    }
  }

  #tell({ changes, resolve, reject }: Waiting, lost: ReadonlySet<string>): void {
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
