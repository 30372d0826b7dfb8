import type { Clock } from "../../../lib/clock.ts";
import { type ParallelLimit, type ParallelSlots, reservedSlots } from "../interface.ts";
import { MemorySlots } from "../parallel-slots.ts";
import type { SlotScript } from "./slot-script.ts";

/*
 * An instance is in one of three states towards the counts in Redis:
 *
 * - idle: it has not begun, because no provider has a limit.
 * - joined: Redis decides. It knows how many calls of this instance run within each limit: each exchange tells
 *   the numbers themselves, not changes, so that one that was lost or came twice does no harm.
 * - apart: Redis does not answer. The instance lets in its own share of each limit, max / live instances and at
 *   least 1, counting all of its calls. The exchange that joins tells all of them at once.
 *
 * A member's name is new each time it joins: what a connection that was given up still delivers is refused.
 *
 * Why this keeps a limit: joined instances together have at most what is left when each live instance that has
 * not joined has its share. When an instance loses Redis, its calls count for it in Redis until its lease has
 * ended; those that others run by then stay, so that less than twice the limit runs until they have ended.
 */

interface RedisSlotsOptions {
  readonly script: Pick<SlotScript, "exchange" | "leave">;
  readonly clock: Clock;
  readonly instanceId: string;
  /** Ids of the instances that live, this one among them; known without Redis. */
  liveInstances(): readonly string[];
}

/** How often an instance says that it is there, well within its lease. */
const RENEW_MS = 500;
/** How often those who wait look for places that other instances have given back. */
const LOOK_AGAIN_MS = 100;
/** Of one exchange, so that it stops Redis for less than a millisecond. */
const MAX_ASKS = 128;

interface Ask {
  readonly limits: readonly ParallelLimit[];
  resolve(isGranted: boolean): void;
}

/** Places of calls over all instances, counted in Redis; where it is gone, in each instance's own share. */
export class RedisSlots implements ParallelSlots {
  readonly #options: RedisSlotsOptions;
  readonly #own = new MemorySlots();
  #state: "idle" | "joined" | "apart" = "idle";
  #incarnation = 0;
  #asks: Ask[] = [];
  /** Within which calls have ended since the last exchange, by id. */
  readonly #changed = new Map<string, ParallelLimit>();
  readonly #refusedIds = new Set<string>();
  #turn: Promise<void> = Promise.resolve();
  #isFlushing = false;
  #looksAgain = false;
  #onFree: (limitId: string) => void = () => {};
  #cancelRenewal: () => void = () => {};
  #isClosed = false;
  /** The limits as they were last asked for, by id. */
  readonly #limits = new Map<string, ParallelLimit>();

  constructor(options: RedisSlotsOptions) {
    this.#options = options;
    this.#own.onFree((limitId) => this.#onFree(limitId));
  }

  onFree(listener: (limitId: string) => void): void {
    this.#onFree = listener;
  }

  async begin(): Promise<void> {
    if (this.#state !== "idle") return;
    this.#state = "apart";
    await this.#renew();
  }

  /** Its calls have ended. */
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
      this.#asks.push({ limits, resolve });
      this.#flushSoon();
    });
  }

  release(limits: readonly ParallelLimit[]): void {
    for (const limit of limits) this.#changed.set(limit.id, limit);
    this.#own.release(limits);
    if (this.#state === "joined") this.#flushSoon();
  }

  #takeApart(limits: readonly ParallelLimit[]): boolean {
    const instances = Math.max(1, this.#options.liveInstances().length);
    const shares = limits.map((limit) => ({
      ...limit,
      max: Math.max(1, Math.floor(limit.max / instances)),
    }));
    const isTaken = this.#own.take(shares);
    if (!isTaken) this.#lookAgain(limits);
    return isTaken;
  }

  /** What happens in this round of the event loop shares an exchange. */
  #flushSoon(): void {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    setImmediate(() => void this.#inTurn(() => this.#flush()));
  }

  async #flush(): Promise<void> {
    while (this.#state === "joined" && (this.#asks.length > 0 || this.#changed.size > 0)) {
      await this.#exchange(this.#asks.splice(0, MAX_ASKS));
    }
    this.#isFlushing = false;
    for (const { limits, resolve } of this.#asks.splice(0)) resolve(this.#takeApart(limits));
  }

  /** One exchange runs at a time. */
  #inTurn(work: () => Promise<void>): Promise<void> {
    this.#turn = this.#turn.then(work);
    return this.#turn;
  }

  async #exchange(asks: readonly Ask[]): Promise<void> {
    // The lease may have run out while this process was held up: then it joins again.
    const granted =
      (await this.#tell(asks).catch(() => undefined)) ??
      (await this.#join(asks).catch(() => undefined));
    if (granted === undefined) this.#state = "apart";
    for (const [at, { limits, resolve }] of asks.entries()) {
      if (granted?.[at] === true) this.#own.add(limits);
      else if (granted !== undefined) this.#lookAgain(limits);
      resolve(granted?.[at] ?? this.#takeApart(limits));
    }
  }

  /** Tells what has changed. */
  #tell(asks: readonly Ask[]): Promise<boolean[]> {
    const limits = new Map(this.#changed);
    this.#changed.clear();
    return this.#send(limits, asks, false);
  }

  /** Tells everything, under a new name. */
  #join(asks: readonly Ask[]): Promise<boolean[]> {
    this.#incarnation++;
    this.#changed.clear();
    return this.#send(this.#takenLimits(), asks, true);
  }

  #takenLimits(): Map<string, ParallelLimit> {
    return new Map(this.#own.takenIds.map((id) => [id, this.#limits.get(id)!]));
  }

  #send(
    changed: ReadonlyMap<string, ParallelLimit>,
    asks: readonly Ask[],
    joins: boolean,
  ): Promise<boolean[]> {
    const { script, instanceId, liveInstances } = this.#options;
    const asked = new Map(asks.flatMap(({ limits }) => limits.map((limit) => [limit.id, limit])));
    const limits = [...new Map([...changed, ...asked]).values()];
    const positions = new Map(limits.map(({ id }, at) => [id, at]));
    return script.exchange({
      member: this.#member,
      instanceId,
      joins,
      live: liveInstances(),
      limits: limits.map((limit) => ({ ...limit, taken: this.#own.taken(limit.id) })),
      asks: asks.map((ask) =>
        ask.limits.map((limit) => ({
          position: positions.get(limit.id)!,
          spared: reservedSlots(limit),
        })),
      ),
    });
  }

  get #member(): string {
    return `${this.#options.instanceId}#${this.#incarnation}`;
  }

  /** Says that this instance is there, and tells all of its calls again in case Redis has lost some. */
  async #renew(): Promise<void> {
    await this.#inTurn(async () => {
      if (this.#isClosed) return;
      if (this.#state === "joined") {
        for (const [id, limit] of this.#takenLimits()) this.#changed.set(id, limit);
        await this.#exchange([]);
      } else if (await this.#join([]).catch(() => undefined)) this.#state = "joined";
    });
    if (this.#isClosed) return;
    this.#cancelRenewal = this.#options.clock.after(RENEW_MS, () => void this.#renew());
  }

  /** Other instances do not report the places that they give back. */
  #lookAgain(limits: readonly ParallelLimit[]): void {
    for (const { id } of limits) this.#refusedIds.add(id);
    if (this.#looksAgain || this.#isClosed) return;
    this.#looksAgain = true;
    this.#options.clock.after(LOOK_AGAIN_MS, () => {
      this.#looksAgain = false;
      const ids = [...this.#refusedIds];
      this.#refusedIds.clear();
      for (const id of ids) this.#onFree(id);
    });
  }
}
