import type { Database } from "../../../../db/client.ts";
import { freeIdempotencyKey, type IdempotencyClaim } from "../../../../db/queries/idempotency.ts";
import { type Clock, sleep } from "../../../lib/clock.ts";

/** Keys waiting to be freed while the database is unreachable. Further keys are freed at the next start. */
const MAX_WAITING_FREES = 10_000;
const RETRY_MS = 100;

interface Free {
  readonly claim: IdempotencyClaim;
  readonly done: Promise<void>;
  resolve(): void;
}

/** Frees keys one after another. Retries each key until the database has freed it. */
export class KeyFrees {
  readonly #sql: Database;
  readonly #clock: Clock;
  readonly #queue: Free[] = [];
  /** The latest free of each key. */
  readonly #underWay = new Map<string, Free>();
  #running: Promise<void> | undefined;
  #isClosed = false;

  constructor(sql: Database, clock: Clock) {
    this.#sql = sql;
    this.#clock = clock;
  }

  /** Resolves when the key is free. Never rejects. */
  free(claim: IdempotencyClaim): Promise<void> {
    const current = this.#underWay.get(nameOf(claim));
    if (current?.claim.requestId === claim.requestId) return current.done;
    if (this.#queue.length >= MAX_WAITING_FREES) return Promise.resolve();
    const { promise: done, resolve } = Promise.withResolvers<void>();
    const free = { claim, done, resolve };
    this.#queue.push(free);
    this.#underWay.set(nameOf(claim), free);
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
    return done;
  }

  /**
   * Returns undefined if this instance is not freeing the key. Otherwise returns a promise that resolves when
   * the key is free.
   */
  underWay(claim: IdempotencyClaim): Promise<void> | undefined {
    return this.#underWay.get(nameOf(claim))?.done;
  }

  /** Waits for running frees, while the database answers. */
  async close(): Promise<void> {
    await Promise.race([this.#running, Bun.sleep(RETRY_MS)]);
    this.#isClosed = true;
  }

  async #run(): Promise<void> {
    for (let free = this.#queue[0]; free && !this.#isClosed; free = this.#queue[0]) {
      try {
        await freeIdempotencyKey(this.#sql, free.claim);
        this.#queue.shift();
        const name = nameOf(free.claim);
        if (this.#underWay.get(name) === free) this.#underWay.delete(name);
        free.resolve();
      } catch {
        await sleep(this.#clock, RETRY_MS);
      }
    }
  }
}

function nameOf({ keyId, idempotencyKey }: IdempotencyClaim): string {
  return `${keyId} ${idempotencyKey}`;
}
