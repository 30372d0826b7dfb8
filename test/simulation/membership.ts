import type { Database } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/commit-batch.ts";
import { settleDead } from "../../db/ledger/settle-dead.ts";
import { recentChanges } from "../../db/queries/changes.ts";
import {
  buryOthers,
  heartbeat,
  insertInstance,
  keepAloneLock,
  takeAloneLock,
} from "../../db/queries/instances.ts";
import { type Clock, sleep } from "../../src/lib/clock.ts";
import { GatewayError } from "../../src/lib/errors.ts";
import { INSTANCE_LEASE_MS } from "./postgres/instance-statements.ts";

export interface MembershipOptions {
  readonly company: "alone" | "several";
  /** A session of its own. */
  readonly lock: Database;
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly clock: Clock;
  onChange(kind: string, objectId: string): void;
  onGap(): void;
  onFenced(): void;
  onError(error: unknown): void;
}

const HEARTBEAT_MS = 250;
const MAX_NEWS_AGE_MS = 1_000;
const MAX_WAIT_FOR_NEWS_MS = 900;
const RETRY_MS = 50;

/** How an instance lives in the database, takes over what the dead left, and learns of changes. */
export class Membership {
  readonly #options: MembershipOptions;
  readonly #seen = new Set<bigint>();
  #freshAtMs = Number.NEGATIVE_INFINITY;
  #steadySinceMs = Number.POSITIVE_INFINITY;
  #reaping: Promise<void> | undefined;

  constructor(options: MembershipOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    const { company, clock } = this.#options;
    while (!(await this.#tryEnter())) await sleep(clock, RETRY_MS);
    await this.#beat();
    this.#schedule();
    if (company === "alone") await this.#settle();
  }

  get isFresh(): boolean {
    return this.#options.clock.nowMs() - this.#freshAtMs <= MAX_NEWS_AGE_MS;
  }

  /** Rejects with 503 where news do not come soon. */
  async whenFresh(): Promise<void> {
    const { clock } = this.#options;
    const untilMs = clock.nowMs() + MAX_WAIT_FOR_NEWS_MS;
    while (!this.isFresh) {
      if (clock.nowMs() >= untilMs) {
        throw new GatewayError("database_unavailable", "The database cannot be reached.");
      }
      await sleep(clock, RETRY_MS);
    }
  }

  /** True while nobody can have taken this instance for dead. */
  get isCurrent(): boolean {
    const { company, clock } = this.#options;
    return company === "alone" || clock.nowMs() - this.#freshAtMs < INSTANCE_LEASE_MS;
  }

  async #tryEnter(): Promise<boolean> {
    const { company, lock, sql, instance, onError } = this.#options;
    try {
      if (company === "alone" && !(await takeAloneLock(lock))) return false;
      await insertInstance(sql, instance);
      if (company === "alone") await buryOthers(sql, instance.id);
      return true;
    } catch (error) {
      if ((error as { code?: string }).code === "23505") return true;
      onError(error);
      return false;
    }
  }

  #schedule(): void {
    this.#options.clock.after(HEARTBEAT_MS, async () => {
      await this.#beat();
      this.#schedule();
    });
  }

  async #beat(): Promise<void> {
    const { company, lock, instance, clock, onFenced, onError, onGap, onChange } = this.#options;
    const beganMs = clock.nowMs();
    try {
      const [isAlive, isAlone, changes] = await Promise.all([
        heartbeat(lock, instance),
        company === "alone" ? keepAloneLock(lock) : true,
        recentChanges(lock),
      ]);
      if (!isAlive || !isAlone) return onFenced();
      if (beganMs - this.#freshAtMs > MAX_NEWS_AGE_MS * 5) onGap();
      const isGap = clock.nowMs() - this.#freshAtMs > MAX_NEWS_AGE_MS;
      if (isGap) this.#steadySinceMs = clock.nowMs();
      for (const change of changes) {
        if (this.#seen.has(change.id)) continue;
        this.#seen.add(change.id);
        onChange(change.kind, change.objectId);
      }
      this.#freshAtMs = beganMs;
      if (company === "several" && clock.nowMs() - this.#steadySinceMs >= INSTANCE_LEASE_MS) {
        this.#reap();
      }
    } catch (error) {
      this.#steadySinceMs = Number.POSITIVE_INFINITY;
      onError(error);
    }
  }

  #reap(): void {
    this.#reaping ??= this.#bury()
      .then(() => this.#settle())
      .catch(this.#options.onError)
      .finally(() => {
        this.#reaping = undefined;
      });
  }

  async #settle(): Promise<void> {
    const { sql, instance, onError } = this.#options;
    const { failures } = await settleDead(sql, instance);
    for (const failure of failures) onError(failure);
  }

  async #bury(): Promise<void> {
    const { sql, instance } = this.#options;
    await sql.begin(async (transaction) => {
      const [self] = await transaction`SELECT 1 FROM instances
        WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint AND alive
        FOR KEY SHARE`;
      if (self === undefined) return;
      const silent = await transaction<{ id: string }[]>`SELECT id FROM instances
        WHERE id <> ${instance.id} AND alive AND heartbeat_at <= clock_timestamp() - instance_lease()
        ORDER BY id LIMIT ${32} FOR UPDATE SKIP LOCKED`;
      if (silent.length === 0) return;
      const ids = silent.map(({ id }) => id);
      await transaction`UPDATE instances SET alive = false WHERE id = ANY (${sql.array(ids)}::text[])`;
    });
  }
}
