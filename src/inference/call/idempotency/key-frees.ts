import type { Database } from "../../../../db/client.ts";
import { freeIdempotencyKey, type IdempotencyClaim } from "../../../../db/queries/idempotency.ts";
import { type Clock, sleep } from "../../../lib/clock.ts";

/** Keys that wait to be freed while the database is away; further ones wait for the next start. */
const MAX_WAITING_FREES = 10_000;
const RETRY_MS = 100;

interface Free {
  readonly claim: IdempotencyClaim;
  readonly done: Promise<void>;
  resolve(): void;
}

/** Frees keys one after the other, each until the database has done it. */
export class KeyFrees {
  readonly #sql: Database;
  readonly #clock: Clock;
  readonly #queue: Free[] = [];
  /** The last one of each key. */
  readonly #underWay = new Map<string, Free>();
  #running: Promise<void> | undefined;
  #isClosed = false;

  constructor(sql: Database, clock: Clock) {
    this.#sql = sql;
    this.#clock = clock;
  }

  /** Resolves when it is done. Never rejects. */
  free(claim: IdempotencyClaim): Promise<void> {
    const before = this.#underWay.get(nameOf(claim));
    if (before?.claim.requestId === claim.requestId) return before.done;
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

  /** Undefined if this key is not being freed here; else resolves when that is done. */
  underWay(claim: IdempotencyClaim): Promise<void> | undefined {
    return this.#underWay.get(nameOf(claim))?.done;
  }

  /** Waits for those under way, as far as the database answers. */
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
