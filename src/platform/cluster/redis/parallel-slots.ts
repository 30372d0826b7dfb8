import type { Clock } from "../../../lib/clock.ts";
import { type ParallelLimit, type ParallelSlots, reservedSlots } from "../interface.ts";
import { MemorySlots } from "../parallel-slots.ts";
import type { SlotScript } from "./slot-script.ts";

/*
 * An instance is in one of three states towards the counts in Redis:
 *
 * - idle: it has not started, because no provider has a limit.
 * - joined: Redis decides. It knows how many calls of this instance run within each limit. Each
 *   exchange sends the numbers and not their changes, so a lost or repeated exchange does no harm.
 * - apart: Redis does not answer. The instance admits its share of each limit, max / live instances
 *   and at least 1, and counts all of its calls. The exchange with which it joins reports all of
 *   them.
 *
 * The name of a member is new each time it joins. Redis thus rejects late messages of an abandoned
 * connection.
 *
 * Why this keeps a limit: joined instances together have at most the slots that remain when each
 * live instance that has not joined has its share. When an instance loses Redis, its calls count in
 * Redis until its lease has expired. Calls that others start by then continue, so fewer than twice
 * the limit run until they have ended.
 */

interface RedisSlotsOptions {
  readonly script: Pick<SlotScript, "exchange" | "leave">;
  readonly clock: Clock;
  readonly instanceId: string;
  /** Returns the ids of the live instances, including this one. Does not need Redis. */
  liveInstances(): readonly string[];
}

/** Milliseconds between renewals of the lease in Redis, well within the lease. */
const RENEW_MS = 500;
/** Milliseconds until waiting callers look for slots that other instances have released. */
const LOOK_AGAIN_MS = 100;
/** Slot requests in one exchange, so that it blocks Redis for less than a millisecond. */
const MAX_REQUESTS_AN_EXCHANGE = 128;

interface SlotRequest {
  readonly limits: readonly ParallelLimit[];
  resolve(isGranted: boolean): void;
}

/**
 * Slots for calls over all instances, counted in Redis. If Redis is unavailable, each instance has
 * its share.
 */
export class RedisSlots implements ParallelSlots {
  readonly #options: RedisSlotsOptions;
  readonly #local = new MemorySlots();
  #state: "idle" | "joined" | "apart" = "idle";
  #incarnation = 0;
  #requests: SlotRequest[] = [];
  /** The limits within which calls have ended since the last exchange, by id. */
  readonly #changed = new Map<string, ParallelLimit>();
  readonly #rejectedIds = new Set<string>();
  #turn: Promise<void> = Promise.resolve();
  #isFlushing = false;
  #looksAgain = false;
  #onFree: (limitId: string) => void = () => {};
  #cancelRenewal: () => void = () => {};
  #isClosed = false;
  /** The limits of the most recent requests, by id. */
  readonly #limits = new Map<string, ParallelLimit>();

  constructor(options: RedisSlotsOptions) {
    this.#options = options;
    this.#local.onFree((limitId) => this.#onFree(limitId));
  }

  onFree(listener: (limitId: string) => void): void {
    this.#onFree = listener;
  }

  async begin(): Promise<void> {
    if (this.#state !== "idle") return;
    this.#state = "apart";
    await this.#renew();
  }

  /** Leaves Redis's counts. Called after the calls of this instance have ended. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelRenewal();
    await this.#turn;
    if (this.#state !== "joined") return;
    this.#state = "apart";
    await this.#options.script.leave(this.#member).catch(() => {});
  }

  take(limits: readonly ParallelLimit[]): boolean | Promise<boolean> {
    for (const limit of limits) this.#limits.set(limit.id, limit);
    if (this.#state !== "joined") return this.#takeApart(limits);
    return new Promise((resolve) => {
      this.#requests.push({ limits, resolve });
      this.#flushSoon();
    });
  }

  release(limits: readonly ParallelLimit[]): void {
    for (const limit of limits) this.#changed.set(limit.id, limit);
    this.#local.release(limits);
    if (this.#state === "joined") this.#flushSoon();
  }

  #takeApart(limits: readonly ParallelLimit[]): boolean {
    const instances = Math.max(1, this.#options.liveInstances().length);
    const shares = limits.map((limit) => ({
      ...limit,
      max: Math.max(1, Math.floor(limit.max / instances)),
    }));
    const isAdmitted = this.#local.take(shares);
    if (!isAdmitted) this.#lookAgain(limits);
    return isAdmitted;
  }

  /** Starts an exchange for everything that happens in this turn of the event loop. */
  #flushSoon(): void {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    setImmediate(() => void this.#inTurn(() => this.#flush()));
  }

  async #flush(): Promise<void> {
    while (this.#state === "joined" && (this.#requests.length > 0 || this.#changed.size > 0)) {
      await this.#exchange(this.#requests.splice(0, MAX_REQUESTS_AN_EXCHANGE));
    }
    this.#isFlushing = false;
    for (const { limits, resolve } of this.#requests.splice(0)) resolve(this.#takeApart(limits));
  }

  /** Runs the work after the previous one, so that only one exchange runs at a time. */
  #inTurn(work: () => Promise<void>): Promise<void> {
    this.#turn = this.#turn.then(work);
    return this.#turn;
  }

  async #exchange(requests: readonly SlotRequest[]): Promise<void> {
    // The lease may have expired while this process was blocked. The instance then joins again.
    const granted =
      (await this.#sendChanges(requests).catch(() => undefined)) ??
      (await this.#join(requests).catch(() => undefined));
    if (granted === undefined) this.#state = "apart";
    for (const [at, { limits, resolve }] of requests.entries()) {
      if (granted?.[at] === true) this.#local.add(limits);
      else if (granted !== undefined) this.#lookAgain(limits);
      resolve(granted?.[at] ?? this.#takeApart(limits));
    }
  }

  /** Sends the limits that have changed. */
  #sendChanges(requests: readonly SlotRequest[]): Promise<boolean[]> {
    const limits = new Map(this.#changed);
    this.#changed.clear();
    return this.#send(limits, requests, false);
  }

  /** Sends all limits, under a new member name. */
  #join(requests: readonly SlotRequest[]): Promise<boolean[]> {
    this.#incarnation++;
    this.#changed.clear();
    return this.#send(this.#usedLimits(), requests, true);
  }

  #usedLimits(): Map<string, ParallelLimit> {
    return new Map(this.#local.usedIds.map((id) => [id, this.#limits.get(id)!]));
  }

  #send(
    changed: ReadonlyMap<string, ParallelLimit>,
    requests: readonly SlotRequest[],
    joins: boolean,
  ): Promise<boolean[]> {
    const { script, instanceId, liveInstances } = this.#options;
    const requested = new Map(
      requests.flatMap(({ limits }) => limits.map((limit) => [limit.id, limit])),
    );
    const limits = [...new Map([...changed, ...requested]).values()];
    const positions = new Map(limits.map(({ id }, at) => [id, at]));
    return script.exchange({
      member: this.#member,
      instanceId,
      joins,
      live: liveInstances(),
      limits: limits.map((limit) => ({ ...limit, used: this.#local.used(limit.id) })),
      requests: requests.map((request) =>
        request.limits.map((limit) => ({
          position: positions.get(limit.id)!,
          reserved: reservedSlots(limit),
        })),
      ),
    });
  }

  get #member(): string {
    return `${this.#options.instanceId}#${this.#incarnation}`;
  }

  /** Renews the lease, and sends all counts again in case Redis has lost some. */
  async #renew(): Promise<void> {
    await this.#inTurn(async () => {
      if (this.#isClosed) return;
      if (this.#state === "joined") {
        for (const [id, limit] of this.#usedLimits()) this.#changed.set(id, limit);
        await this.#exchange([]);
      } else if (await this.#join([]).catch(() => undefined)) this.#state = "joined";
    });
    if (this.#isClosed) return;
    this.#cancelRenewal = this.#options.clock.after(RENEW_MS, () => void this.#renew());
  }

  /**
   * Starts a look for free slots, because other instances do not report the slots that they
   * release.
   */
  #lookAgain(limits: readonly ParallelLimit[]): void {
    for (const { id } of limits) this.#rejectedIds.add(id);
    if (this.#looksAgain || this.#isClosed) return;
    this.#looksAgain = true;
    this.#options.clock.after(LOOK_AGAIN_MS, () => {
      this.#looksAgain = false;
      const ids = [...this.#rejectedIds];
      this.#rejectedIds.clear();
      for (const id of ids) this.#onFree(id);
    });
  }
}
