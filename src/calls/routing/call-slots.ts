import type { ParallelLimit, ParallelSlots } from "../../cluster/interface.ts";
import type { Clock } from "../../lib/clock.ts";
import type { AbortNotice } from "../../providers/transport/call-abort.ts";

/** A candidate's limits: of its provider, of its endpoint, or both. */
export type CallLimits = readonly ParallelLimit[];

/** Calls that wait for one endpoint. */
const MAX_WAITING_FOR_ONE = 500;

interface CallSlotsOptions {
  readonly slots: ParallelSlots;
  readonly clock: Clock;
  /** How long a call waits in all; 0: none waits. */
  readonly maxWaitMs: number;
}

/** A call that waits for a place at any of several endpoints. */
interface Waiting {
  readonly options: readonly CallLimits[];
  /** Of the option whose places it got; undefined where it waits no longer. */
  end(option: number | undefined): void;
  isOver: boolean;
}

/**
 * The places of calls within the limits of providers and endpoints. Who waits for an endpoint comes before
 * those that ask for it later, in this process; over several instances chance decides. Calls that spare half of
 * the places come behind all others.
 */
export class CallSlots {
  readonly maxWaitMs: number;
  readonly #slots: ParallelSlots;
  readonly #clock: Clock;
  /** In the order in which they began to wait. */
  readonly #waiting = new Set<Waiting>();
  readonly #waitingLast = new Set<Waiting>();
  /** By endpoint. */
  readonly #counts = new Map<string, number>();
  /** Limits within which a place may have become free. */
  readonly #freed = new Set<string>();
  #isServing = false;

  constructor({ slots, clock, maxWaitMs }: CallSlotsOptions) {
    this.#slots = slots;
    this.#clock = clock;
    this.maxWaitMs = maxWaitMs;
    slots.onFree((limitId) => this.#noteFree(limitId));
  }

  /** Calls that wait. */
  get waiting(): number {
    return this.#waiting.size + this.#waitingLast.size;
  }

  /** Takes a place within each limit, or none. */
  take(limits: CallLimits): boolean | Promise<boolean> {
    const isAwaited = this.#counts.has(nameOf(limits)) || this.#counts.has(idsOf(limits));
    return isAwaited ? false : this.#slots.take(limits);
  }

  /** Gives back what `take` or `wait` took. */
  release(limits: CallLimits): void {
    this.#slots.release(limits);
  }

  /**
   * Waits until one of the options has a place, which is taken then; resolves with its position. Undefined
   * where the time is up, the call is aborted, or too many wait already.
   */
  wait(
    options: readonly CallLimits[],
    abort: AbortNotice,
    withinMs: number,
  ): Promise<number | undefined> {
    const open = options.filter((limits) => this.#countOf(limits) < MAX_WAITING_FOR_ONE);
    if (abort.aborted || withinMs <= 0 || open.length === 0) return Promise.resolve(undefined);
    const { promise, resolve } = Promise.withResolvers<number | undefined>();
    const listener = { handleEvent: () => waiting.end(undefined) };
    const cancel = this.#clock.after(withinMs, () => waiting.end(undefined));
    const waiting: Waiting = {
      options: open,
      isOver: false,
      end: (option) => {
        if (waiting.isOver) return;
        waiting.isOver = true;
        cancel();
        abort.removeEventListener("abort", listener);
        this.#remove(waiting);
        resolve(option === undefined ? undefined : options.indexOf(open[option]!));
      },
    };
    abort.addEventListener("abort", listener);
    (open.some(sparesHalf) ? this.#waitingLast : this.#waiting).add(waiting);
    for (const limits of open) this.#counts.set(nameOf(limits), this.#countOf(limits) + 1);
    // A place may have become free since it was refused.
    for (const { id } of open.flat()) this.#noteFree(id);
    return promise;
  }

  #countOf(limits: CallLimits): number {
    return this.#counts.get(nameOf(limits)) ?? 0;
  }

  #remove(waiting: Waiting): void {
    this.#waiting.delete(waiting);
    this.#waitingLast.delete(waiting);
    for (const limits of waiting.options) {
      const left = this.#countOf(limits) - 1;
      if (left > 0) this.#counts.set(nameOf(limits), left);
      else this.#counts.delete(nameOf(limits));
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
      const freed = new Set(this.#freed);
      this.#freed.clear();
      /** Endpoints that turned out to be full. */
      const full = new Set<string>();
      for (const waiting of [...this.#waiting, ...this.#waitingLast]) {
        for (const [at, limits] of waiting.options.entries()) {
          if (waiting.isOver || full.has(nameOf(limits))) continue;
          if (!limits.some(({ id }) => freed.has(id))) continue;
          if (!(await this.#slots.take(limits))) full.add(nameOf(limits));
          else if (waiting.isOver) this.#slots.release(limits);
          else waiting.end(at);
        }
      }
    }
    this.#isServing = false;
  }
}

function sparesHalf(limits: CallLimits): boolean {
  return limits[0]!.sparesHalf === true;
}

function idsOf(limits: CallLimits): string {
  return limits.length === 1 ? limits[0]!.id : limits.map(({ id }) => id).join("\n");
}

/** Of the queue for an endpoint, in which only calls of one kind wait. */
function nameOf(limits: CallLimits): string {
  return sparesHalf(limits) ? `${idsOf(limits)}\nspared` : idsOf(limits);
}
