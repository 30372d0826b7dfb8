import type { Clock } from "../../../lib/clock.ts";
import { FairQueue, SharedRoom, slotsLeftFree } from "../../../lib/fair-share.ts";
import type { ParallelLimit, ParallelSlots } from "../../../platform/cluster/interface.ts";
import type { AbortNotice } from "../../../providers/transport/call-abort.ts";

/** The concurrency limits of a candidate: of its provider, of its endpoint, or both. */
export type CallLimits = readonly ParallelLimit[];

/** Calls waiting for one endpoint. */
const MAX_WAITING_FOR_ONE = 500;

interface CallSlotsOptions {
  readonly slots: ParallelSlots;
  readonly clock: Clock;
  /** The longest total wait of a call. 0: calls do not wait. */
  readonly maxWaitMs: number;
}

/** A call that waits for a slot at one of several endpoints. */
interface WaitingCall {
  readonly owner: string;
  readonly options: readonly CallLimits[];
  /**
   * Ends the wait, with the index of the option whose slots were taken. Undefined if the call stops waiting.
   */
  end(option: number | undefined): void;
  isOver: boolean;
}

/**
 * Slots for calls within the concurrency limits of providers and endpoints. In this process, organizations
 * that wait for an endpoint are served in turn. Later calls wait after earlier calls of their organization.
 * Among several instances the order is random. Low-priority calls are served after all others.
 */
export class CallSlots {
  readonly maxWaitMs: number;
  readonly #slots: ParallelSlots;
  readonly #clock: Clock;
  readonly #waiting = new FairQueue<WaitingCall>();
  readonly #waitingLast = new FairQueue<WaitingCall>();
  /** Counts of waiting calls, by the name of the endpoint's queue: see `nameOf`. */
  readonly #waitingRooms = new Map<string, SharedRoom>();
  /** Slots that calls of this process hold, by limit and organization. */
  readonly #held = new Map<string, number>();
  /** Limits in which a slot was possibly released. */
  readonly #freed = new Set<string>();
  #isServing = false;

  constructor({ slots, clock, maxWaitMs }: CallSlotsOptions) {
    this.#slots = slots;
    this.#clock = clock;
    this.maxWaitMs = maxWaitMs;
    slots.onFree((limitId) => this.#noteFree(limitId));
  }

  /** Calls that wait for a slot. */
  get waiting(): number {
    return this.#waiting.size + this.#waitingLast.size;
  }

  /** Takes a slot in each limit for an organization, or none. */
  take(owner: string, limits: CallLimits): boolean | Promise<boolean> {
    return this.#isAwaited(owner, limits) ? false : this.#takeShare(owner, limits);
  }

  /** Releases the slots that `take` or `wait` took. */
  release(owner: string, limits: CallLimits): void {
    this.#note(owner, limits, -1);
    this.#slots.release(limits);
  }

  /**
   * Waits until one of the options has free slots, takes them, and resolves with the index of the option.
   * Resolves with undefined if the time is up, the call is aborted, or too many calls of all organizations or
   * of this one are waiting.
   */
  wait(
    owner: string,
    options: readonly CallLimits[],
    abort: AbortNotice,
    withinMs: number,
  ): Promise<number | undefined> {
    if (abort.aborted || withinMs <= 0) return Promise.resolve(undefined);
    const open = options.filter((limits) => this.#waitingRoomOf(limits).tryTake(owner));
    if (open.length === 0) return Promise.resolve(undefined);
    const { promise, resolve } = Promise.withResolvers<number | undefined>();
    const listener = { handleEvent: () => waiting.end(undefined) };
    const cancel = this.#clock.after(withinMs, () => waiting.end(undefined));
    const queue = open.some(isLowPriority) ? this.#waitingLast : this.#waiting;
    const waiting: WaitingCall = {
      owner,
      options: open,
      isOver: false,
      end: (option) => {
        if (waiting.isOver) return;
        waiting.isOver = true;
        cancel();
        abort.removeEventListener("abort", listener);
        if (option === undefined) queue.remove(owner, waiting);
        else queue.take(owner, waiting);
        for (const limits of open) this.#leaveWaitingRoom(owner, limits);
        resolve(option === undefined ? undefined : options.indexOf(open[option]!));
      },
    };
    abort.addEventListener("abort", listener);
    queue.push(owner, waiting);
    // A slot may have been released since it was last requested.
    for (const { id } of open.flat()) this.#noteFree(id);
    return promise;
  }

  #waitingRoomOf(limits: CallLimits): SharedRoom {
    const name = nameOf(limits);
    const existing = this.#waitingRooms.get(name);
    if (existing !== undefined) return existing;
    const room = new SharedRoom(MAX_WAITING_FOR_ONE);
    this.#waitingRooms.set(name, room);
    return room;
  }

  #leaveWaitingRoom(owner: string, limits: CallLimits): void {
    const room = this.#waitingRoomOf(limits);
    room.free(owner);
    if (room.used === 0) this.#waitingRooms.delete(nameOf(limits));
  }

  /** Returns true if calls wait for the endpoint that are served before a new call of this organization. */
  #isAwaited(owner: string, limits: CallLimits): boolean {
    if (isLowPriority(limits) && this.#waitingRooms.has(idsOf(limits))) return true;
    const room = this.#waitingRooms.get(nameOf(limits));
    if (room === undefined) return false;
    const held = this.#heldBy(owner, limits);
    for (const holder of room.holders) if (this.#heldBy(holder, limits) <= held) return true;
    return false;
  }

  /** Takes slots. Leaves slots free for others if the organization holds several. */
  #takeShare(owner: string, limits: CallLimits): boolean | Promise<boolean> {
    const outcome = this.#slots.take(this.#sharing(owner, limits));
    if (!(outcome instanceof Promise)) {
      if (outcome) this.#note(owner, limits, 1);
      return outcome;
    }
    return outcome.then((isHeld) => {
      if (isHeld) this.#note(owner, limits, 1);
      return isHeld;
    });
  }

  #sharing(owner: string, limits: CallLimits): CallLimits {
    const reservedForOthers = slotsLeftFree(this.#heldBy(owner, limits) + 1);
    return reservedForOthers === 0
      ? limits
      : limits.map((limit) => ({ ...limit, reservedForOthers }));
  }

  #heldBy(owner: string, limits: CallLimits): number {
    return Math.max(...limits.map(({ id }) => this.#held.get(`${id}\n${owner}`) ?? 0));
  }

  #note(owner: string, limits: CallLimits, change: 1 | -1): void {
    for (const { id } of limits) {
      const name = `${id}\n${owner}`;
      const held = (this.#held.get(name) ?? 0) + change;
      if (held === 0) this.#held.delete(name);
      else this.#held.set(name, held);
    }
  }

  #noteFree(limitId: string): void {
    if (this.waiting === 0) return;
    this.#freed.add(limitId);
    if (this.#isServing) return;
    this.#isServing = true;
    void this.#serve();
  }

  async #serve(): Promise<void> {
    while (this.#freed.size > 0) {
      const freed = [...this.#freed].map((id) => ({ id, max: 1 }));
      this.#freed.clear();
      const loadOf = (owner: string) => this.#heldBy(owner, freed);
      // Saturated endpoints, each with the number of slots that a call must leave free there.
      const full = new Set<string>();
      for (const waiting of [
        ...this.#waiting.inTurn(loadOf),
        ...this.#waitingLast.inTurn(loadOf),
      ]) {
        for (const [at, limits] of waiting.options.entries()) {
          if (!limits.some(({ id }) => freed.some((limit) => limit.id === id))) continue;
          const { owner } = waiting;
          const name = `${nameOf(limits)}\n${slotsLeftFree(this.#heldBy(owner, limits) + 1)}`;
          if (waiting.isOver || full.has(name)) continue;
          if (!(await this.#takeShare(owner, limits))) full.add(name);
          else if (waiting.isOver) this.release(owner, limits);
          else waiting.end(at);
        }
      }
    }
    this.#isServing = false;
  }
}

function isLowPriority(limits: CallLimits): boolean {
  return limits[0]!.reservesHalf === true;
}

function idsOf(limits: CallLimits): string {
  return limits.length === 1 ? limits[0]!.id : limits.map(({ id }) => id).join("\n");
}

/** Returns the name of the queue for an endpoint. Low-priority calls have their own queue. */
function nameOf(limits: CallLimits): string {
  return isLowPriority(limits) ? `${idsOf(limits)}\nspared` : idsOf(limits);
}
