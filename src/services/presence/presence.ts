import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/commit-batch.ts";
import { CHANGES_CHANNEL, recentChanges, removeOldChanges } from "../../../db/queries/changes.ts";
import { removeOldCommitMarks } from "../../../db/queries/commit-marks.ts";
import { removeOldIdempotencyRecords } from "../../../db/queries/idempotency.ts";
import {
  heartbeat,
  keepAloneLock,
  leave,
  removeDeadInstances,
} from "../../../db/queries/instances.ts";
import { GatewayError } from "../../lib/errors.ts";

export interface PresenceDependencies {
  /** A session of its own, behind no other query; it holds the lock of the only gateway. */
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  /** An object changed in another process, or in this one. */
  onChange(kind: string, objectId: string): void;
  /** News may have been missed: nothing in memory can be trusted. */
  onGap(): void;
  /** This instance was declared dead and must stop. */
  onFenced(): void;
  onError(error: unknown): void;
}

const HEARTBEAT_MS = 250;
/** Without news for longer than this, a key that was switched off could still be admitted: nothing is. */
const MAX_NEWS_AGE_MS = 1_000;
/** How long a request waits for news before it is told that the database is out of reach. */
const MAX_WAIT_FOR_NEWS_MS = 900;
const CLEANING_MS = 60_000;
const MAX_SEEN_CHANGES = 10_000;

/**
 * This instance's life in the database: a heartbeat, and the news of what changed, by notification at
 * once and by the heartbeat's own look in any case.
 */
export class Presence {
  readonly #dependencies: PresenceDependencies;
  readonly #seen = new Set<bigint>();
  #freshAtMs = Number.NEGATIVE_INFINITY;
  #waiting: (() => void)[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #cleanedAtMs = performance.now();
  #stopListening: (() => Promise<void>) | undefined;
  #isStopped = false;

  constructor(dependencies: PresenceDependencies) {
    this.#dependencies = dependencies;
  }

  async start(): Promise<void> {
    const { sql, onGap } = this.#dependencies;
    const listening = await sql.listen(
      CHANGES_CHANNEL,
      (payload) => this.#notice(payload),
      () => onGap(),
    );
    this.#stopListening = () => listening.unlisten();
    await this.#beat();
    this.#schedule();
  }

  /** Rejects where the database could not be told. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#stopListening?.().catch(() => {});
    await leave(this.#dependencies.sql, this.#dependencies.instance);
  }

  get isFresh(): boolean {
    return performance.now() - this.#freshAtMs <= MAX_NEWS_AGE_MS;
  }

  /** Undefined where requests may be admitted; else a promise of it. Rejects with 503. */
  whenFresh(): Promise<void> | undefined {
    if (this.isFresh) return undefined;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(
          new GatewayError(
            "database_unavailable",
            "The gateway's database cannot be reached at the moment.",
            {
              retryAfterSeconds: 1,
            },
          ),
        );
      }, MAX_WAIT_FOR_NEWS_MS);
      this.#waiting.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  #schedule(): void {
    if (this.#isStopped) return;
    this.#timer = setTimeout(async () => {
      await this.#beat();
      this.#schedule();
    }, HEARTBEAT_MS);
  }

  async #beat(): Promise<void> {
    const { sql, instance, onFenced, onError, onGap } = this.#dependencies;
    const startedMs = performance.now();
    try {
      const [isAlive, isAlone, changes] = await Promise.all([
        heartbeat(sql, instance),
        keepAloneLock(sql),
        recentChanges(sql),
      ]);
      if (!isAlive || !isAlone) return onFenced();
      if (startedMs - this.#freshAtMs > MAX_NEWS_AGE_MS * 5) onGap();
      for (const change of changes) {
        if (this.#seen.has(change.id)) continue;
        this.#seen.add(change.id);
        this.#dependencies.onChange(change.kind, change.objectId);
      }
      this.#forgetOldest();
      this.#freshAtMs = startedMs;
      for (const resolve of this.#waiting.splice(0)) resolve();
      if (startedMs - this.#cleanedAtMs > CLEANING_MS) await this.#clean(startedMs);
    } catch (error) {
      if (!this.#isStopped) onError(error);
    }
  }

  #forgetOldest(): void {
    for (const id of this.#seen) {
      if (this.#seen.size <= MAX_SEEN_CHANGES) return;
      this.#seen.delete(id);
    }
  }

  #notice(payload: string): void {
    const space = payload.indexOf(" ");
    if (space > 0) this.#dependencies.onChange(payload.slice(0, space), payload.slice(space + 1));
  }

  async #clean(nowMs: number): Promise<void> {
    this.#cleanedAtMs = nowMs;
    const { sql } = this.#dependencies;
    await removeOldChanges(sql);
    await removeOldCommitMarks(sql);
    await removeOldIdempotencyRecords(sql);
    await removeDeadInstances(sql);
  }
}
