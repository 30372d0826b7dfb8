import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { Headroom } from "./headroom.ts";
import type { Hold, HoldRequest } from "./interface.ts";

/** Longest wait of a request that is short only because of running holds. */
const MAX_WAIT_MS = 2_000;
/** Longest wait while holds of an instance that has missed its heartbeats are unsettled. */
export const MAX_WAIT_FOR_SILENT_MS = 6_000;
/** Most waiting requests of one organization. Further requests are decided immediately. */
const MAX_WAITING_REQUESTS = 4_096;
/** Longest final decision, if the database does not answer. */
const MAX_FINAL_DECISION_MS = 500;

/**
 * The deadlines of waiting requests in both engines: at the end of its wait a request is decided once more,
 * independently of the queue. No request is rejected while enough credit is available.
 */
export class HoldDeadlines {
  readonly #clock: Clock;
  readonly #maxWaitMs: number;

  constructor(clock: Clock, maxWaitMs = MAX_WAIT_MS) {
    this.#clock = clock;
    this.#maxWaitMs = maxWaitMs;
  }

  /** Calls `onOver` at the end of a wait. Returns the function that cancels this. */
  startWait(onOver: () => void): () => void {
    return this.#clock.after(this.#maxWaitMs, onOver);
  }

  /** Calls `onTooLate` if the final decision takes too long. Returns the function that cancels this. */
  startFinalDecision(onTooLate: (error: GatewayError) => void): () => void {
    return this.#clock.after(MAX_FINAL_DECISION_MS, () =>
      onTooLate(
        new GatewayError("database_unavailable", "The gateway's database does not answer.", {
          retryAfterSeconds: 1,
        }),
      ),
    );
  }
}

/**
 * The reason that a request waits: its organization's balance, a budget of its key, or only budgets of its
 * subjects.
 */
export type Shortage = "organization" | "key" | "subject";

type Waiter = Pick<HoldRequest, "keyId" | "subjects">;

/**
 * Requests of one organization that wait for holds to end, first come first served. A request that needs a budget
 * for which an earlier one waits queues after it.
 */
export class OrganizationQueue<Waiting extends { readonly request: Waiter }> {
  readonly #waiting = new Map<Waiting, Shortage>();
  readonly #lanes = new BudgetCounts();

  get length(): number {
    return this.#waiting.size;
  }

  get isFull(): boolean {
    return this.#waiting.size >= MAX_WAITING_REQUESTS;
  }

  /** Waiting requests in their order. */
  get waiting(): Iterable<Waiting> {
    return this.#waiting.keys();
  }

  has(entry: Waiting): boolean {
    return this.#waiting.has(entry);
  }

  /** Returns the shortage of an earlier request that also blocks this one, or undefined if there is none. */
  blocks(request: Waiter): Shortage | undefined {
    if (this.#lanes.has("") || this.#lanes.has(request.keyId)) return "key";
    const { subjects = [] } = request;
    return subjects.some(({ budgetId }) => this.#lanes.has(budgetId)) ? "subject" : undefined;
  }

  /**
   * Returns the name of the requests that wait for the same budgets: the budgets of its key, or only the budgets
   * of its subjects.
   */
  groupOf(entry: Waiting): string {
    const shortOf = this.#waiting.get(entry);
    return shortOf === "subject" ? lanesOf(entry.request, shortOf).join(" ") : entry.request.keyId;
  }

  /** Adds a request at the end, or updates the shortage of a request that already waits. */
  note(entry: Waiting, shortOf: Shortage): void {
    const before = this.#waiting.get(entry);
    if (before === shortOf) return;
    this.#waiting.set(entry, shortOf);
    if (before !== undefined) this.#lanes.add(lanesOf(entry.request, before), -1);
    this.#lanes.add(lanesOf(entry.request, shortOf), 1);
  }

  /** Removes a request. Returns false if it does not wait here. */
  remove(entry: Waiting): boolean {
    const shortOf = this.#waiting.get(entry);
    if (shortOf === undefined) return false;
    this.#waiting.delete(entry);
    this.#lanes.add(lanesOf(entry.request, shortOf), -1);
    return true;
  }
}

/**
 * Returns the budgets that this request is waiting for. A later request that needs one of them queues after it.
 * The empty string means the organization's balance. A request that is short only of its subjects' budgets
 * does not block other end users of its key.
 */
function lanesOf({ keyId, subjects = [] }: Waiter, shortOf: Shortage): readonly string[] {
  const ofSubjects = subjects.map(({ budgetId }) => budgetId);
  if (shortOf === "subject") return ofSubjects;
  return shortOf === "key" ? [keyId, ...ofSubjects] : ["", keyId, ...ofSubjects];
}

/** Number of waiting requests per budget. */
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

/** The reason that a request gets no hold. */
export interface Refusal {
  readonly error: unknown;
  /** The headroom on which a 402 is based. Undefined for other errors. */
  readonly headroom?: Headroom;
}

/** The decision on a waiting request. */
export type WaitVerdict =
  | { readonly kind: "held"; readonly hold: Hold }
  | ({ readonly kind: "refused" } & Refusal)
  /** Short for now, because of running holds. */
  | ({ readonly kind: "short"; readonly of: Shortage } & Refusal);

interface WaitingMoney {
  /** Returns undefined if the actors of the request are durable and up to date, otherwise a promise of that. */
  whenSettled(request: HoldRequest): Promise<void> | undefined;
  /** Decides a request. Call it only if the actors are settled. */
  look(request: HoldRequest): WaitVerdict;
  /** Rejects with the error after the events that it causes are written. */
  refuse(request: HoldRequest, refusal: Refusal): Promise<never>;
}

interface Entry {
  readonly request: HoldRequest;
  resolve(hold: Hold | Promise<never>): void;
  cancelTimer(): void;
}

/** The wait queue of a single-node gateway, which decides in memory. */
export class HoldWaitQueue {
  readonly #deadlines: HoldDeadlines;
  readonly #money: WaitingMoney;
  readonly #line = new OrganizationQueue<Entry>();
  #isResuming = false;

  constructor(deadlines: HoldDeadlines, money: WaitingMoney) {
    this.#deadlines = deadlines;
    this.#money = money;
  }

  get length(): number {
    return this.#line.length;
  }

  get isFull(): boolean {
    return this.#line.isFull;
  }

  blocks(request: HoldRequest): Shortage | undefined {
    return this.#line.blocks(request);
  }

  wait(request: HoldRequest, shortOf: Shortage): Promise<Hold> {
    return new Promise((resolve) => {
      const entry: Entry = {
        request,
        resolve,
        cancelTimer: this.#deadlines.startWait(() => this.#decideFinally(entry)),
      };
      this.#line.note(entry, shortOf);
    });
  }

  /** Decides all waiting requests in order, after holds have ended. */
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
    // The wait that is in progress reports this failure.
    if (this.#isResuming) return void settled.catch(() => {});
    this.#isResuming = true;
    settled.then(
      () => {
        this.#isResuming = false;
        this.drain();
      },
      () => {
        // No decision is possible. The final decision of each request reports the reason.
        this.#isResuming = false;
      },
    );
  }

  #decideFinally(entry: Entry): void {
    entry.cancelTimer = this.#deadlines.startFinalDecision((error) => this.#lookLast(entry, error));
    this.#lookLast(entry);
  }

  /** @param tooLate the error of the request if its actors are still reloading or committing */
  #lookLast(entry: Entry, tooLate?: GatewayError): void {
    if (!this.#line.has(entry)) return;
    const settled = this.#money.whenSettled(entry.request);
    if (settled === undefined) {
      this.#leave(entry, this.#money.look(entry.request));
      return;
    }
    if (tooLate !== undefined) {
      settled.catch(() => {});
      this.#leave(entry, { kind: "refused", error: tooLate });
      return;
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
