import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { Hold, HoldRequest } from "./interface.ts";
import type { Headroom } from "./refusal.ts";

/** A request short only because of other running holds waits this long at most. */
export const MAX_WAIT_MS = 2_000;
/** The same while holds of an instance that has missed its heartbeats are still to be settled. */
export const MAX_WAIT_FOR_SILENT_MS = 6_000;
/** Waiting requests of one organization; beyond that a request is refused at once. */
export const MAX_WAITING_REQUESTS = 4_096;
/** How long the last look waits for what is known of the money, where that is just changing. */
const MAX_SETTLING_MS = 500;

/** What a waiting request is short of: its organization's balance, a budget of its key, or only of its subjects. */
export type Shortage = "organization" | "key" | "subject";

type Waiter = Pick<HoldRequest, "keyId" | "subjects">;

/**
 * Requests of one organization that wait for holds to end, first come first served: a request that needs what
 * an earlier one waits for stands behind it.
 */
export class WaitingLine<Waiting extends { readonly request: Waiter }> {
  readonly #waiting = new Map<Waiting, Shortage>();
  readonly #lanes = new BudgetCounts();

  get length(): number {
    return this.#waiting.size;
  }

  /** In order. */
  get waiting(): Iterable<Waiting> {
    return this.#waiting.keys();
  }

  has(one: Waiting): boolean {
    return this.#waiting.has(one);
  }

  /** What an earlier request waits for that this one needs too; undefined where there is none. */
  blocks(request: Waiter): Shortage | undefined {
    if (this.#lanes.has("") || this.#lanes.has(request.keyId)) return "key";
    const { subjects = [] } = request;
    return subjects.some(({ budgetId }) => this.#lanes.has(budgetId)) ? "subject" : undefined;
  }

  /** Names those that wait for the same: of its key, or of its subjects alone. */
  groupOf(one: Waiting): string {
    const shortOf = this.#waiting.get(one);
    return shortOf === "subject" ? lanesOf(one.request, shortOf).join(" ") : one.request.keyId;
  }

  /** Puts it at the end, or notes what one that waits already is short of. */
  note(one: Waiting, shortOf: Shortage): void {
    const before = this.#waiting.get(one);
    if (before === shortOf) return;
    this.#waiting.set(one, shortOf);
    if (before !== undefined) this.#lanes.add(lanesOf(one.request, before), -1);
    this.#lanes.add(lanesOf(one.request, shortOf), 1);
  }

  /** False where it does not wait here. */
  remove(one: Waiting): boolean {
    const shortOf = this.#waiting.get(one);
    if (shortOf === undefined) return false;
    this.#waiting.delete(one);
    this.#lanes.add(lanesOf(one.request, shortOf), -1);
    return true;
  }
}

/**
 * What later requests may need that this one waits for: the organization's balance is the lane "". One that is
 * short of its subjects alone keeps no other end user of its key waiting.
 */
function lanesOf({ keyId, subjects = [] }: Waiter, shortOf: Shortage): readonly string[] {
  const ofSubjects = subjects.map(({ budgetId }) => budgetId);
  if (shortOf === "subject") return ofSubjects;
  return shortOf === "key" ? [keyId, ...ofSubjects] : ["", keyId, ...ofSubjects];
}

/** How many wait in each lane. */
class BudgetCounts {
  readonly #counts = new Map<string, number>();

  has(lane: string): boolean {
    return this.#counts.has(lane);
  }

  add(lanes: readonly string[], by: 1 | -1): void {
    for (const lane of lanes) {
      const count = (this.#counts.get(lane) ?? 0) + by;
      if (count === 0) this.#counts.delete(lane);
      else this.#counts.set(lane, count);
    }
  }
}

/** Why a request gets no hold. */
export interface Refusal {
  readonly error: unknown;
  /** What a 402 was worked out from. Undefined for other errors. */
  readonly headroom?: Headroom;
}

/** What one look at a waiting request decides. */
export type WaitVerdict =
  | { readonly kind: "held"; readonly hold: Hold }
  | ({ readonly kind: "refused" } & Refusal)
  /** Short for the time being. */
  | ({ readonly kind: "short"; readonly of: Shortage } & Refusal);

interface WaitingMoney {
  /** Undefined where what is known of the request's money is durable and up to date; else a promise of it. */
  whenSettled(request: HoldRequest): Promise<void> | undefined;
  /** Only where it is settled. */
  look(request: HoldRequest): WaitVerdict;
  /** Rejects with the error, after what it causes is written. */
  refuse(request: HoldRequest, refusal: Refusal): Promise<never>;
}

interface Entry {
  readonly request: HoldRequest;
  isLastLook: boolean;
  resolve(hold: Hold | Promise<never>): void;
  cancelTimer(): void;
}

/**
 * The waiting line of a single-node gateway, which decides in memory. When its time is up a request is looked
 * at once more, alone, because nothing is refused while the money is there.
 */
export class WaitQueue {
  readonly #clock: Clock;
  readonly #money: WaitingMoney;
  readonly #line = new WaitingLine<Entry>();
  #isResuming = false;

  constructor(clock: Clock, money: WaitingMoney) {
    this.#clock = clock;
    this.#money = money;
  }

  get length(): number {
    return this.#line.length;
  }

  blocks(request: HoldRequest): Shortage | undefined {
    return this.#line.blocks(request);
  }

  wait(request: HoldRequest, shortOf: Shortage): Promise<Hold> {
    return new Promise((resolve) => {
      const entry: Entry = {
        request,
        isLastLook: false,
        resolve,
        cancelTimer: this.#clock.after(MAX_WAIT_MS, () => this.#lookLast(entry)),
      };
      this.#line.note(entry, shortOf);
    });
  }

  /** Looks at everyone in order, after holds have ended. */
  drain(): void {
    const blocked = new Set<string>();
    const isBlocked = ({ keyId, subjects = [] }: HoldRequest) =>
      blocked.has(keyId) || subjects.some(({ budgetId }) => blocked.has(budgetId));
    for (const entry of this.#line.waiting) {
      const { request } = entry;
      if (isBlocked(request)) continue;
      const settled = this.#money.whenSettled(request);
      if (settled !== undefined) {
        this.#resumeWhen(settled);
        return;
      }
      const verdict = this.#money.look(request);
      if (verdict.kind !== "short") {
        this.#line.remove(entry);
        this.#end(entry, verdict);
        continue;
      }
      this.#line.note(entry, verdict.of);
      if (verdict.of === "organization") return;
      for (const lane of lanesOf(request, verdict.of)) blocked.add(lane);
    }
  }

  #resumeWhen(settled: Promise<void>): void {
    // Its failure is for the wait that is under way to report.
    if (this.#isResuming) return void settled.catch(() => {});
    this.#isResuming = true;
    settled.then(
      () => {
        this.#isResuming = false;
        this.drain();
      },
      () => {
        // There is nothing to look at; the last look tells why.
        this.#isResuming = false;
      },
    );
  }

  #lookLast(entry: Entry, isFinal = false): void {
    if (!this.#line.has(entry)) return;
    const settled = this.#money.whenSettled(entry.request);
    if (settled === undefined) {
      this.#leave(entry, this.#money.look(entry.request));
      return;
    }
    if (isFinal) {
      settled.catch(() => {});
      this.#leave(entry, { kind: "refused", error: unsettled() });
      return;
    }
    if (!entry.isLastLook) {
      entry.isLastLook = true;
      entry.cancelTimer = this.#clock.after(MAX_SETTLING_MS, () => this.#lookLast(entry, true));
    }
    settled.then(
      () => this.#lookLast(entry),
      (error) => this.#leave(entry, { kind: "refused", error }),
    );
  }

  #leave(entry: Entry, verdict: WaitVerdict): void {
    if (!this.#line.remove(entry)) return;
    this.#end(entry, verdict);
    this.drain();
  }

  #end(entry: Entry, verdict: WaitVerdict): void {
    entry.cancelTimer();
    if (verdict.kind === "held") entry.resolve(verdict.hold);
    else entry.resolve(this.#money.refuse(entry.request, verdict));
  }
}

function unsettled(): GatewayError {
  return new GatewayError("database_unavailable", "The gateway's database does not answer.", {
    retryAfterSeconds: 1,
  });
}
