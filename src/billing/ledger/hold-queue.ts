import {
  dayAccountId,
  type HoldDemand,
  type HoldSource,
  type HoldUnit,
  type HoldVerdict,
  monthAccountId,
  orgAccountId,
  type RequestAccounts,
  subjectDayAccountId,
  subjectMonthAccountId,
} from "../../../db/ledger/rows.ts";
import type { Clock } from "../../lib/clock.ts";
import { overloaded } from "../../lib/errors.ts";
import { IntrusiveList } from "../../lib/intrusive-list.ts";
import { type Period, utcDay, utcMonth } from "../../lib/utc-time.ts";
import {
  findShortage,
  headroomOf,
  isShortBySpend,
  refusal,
  revoked,
  revokedHeadroom,
} from "./headroom.ts";
import {
  type HoldDeadlines,
  MAX_WAIT_FOR_SILENT_MS,
  OrganizationQueue,
  type Shortage,
} from "./hold-wait-queue.ts";
import type { HoldRequest } from "./interface.ts";
import type { PendingHold } from "./pending-hold.ts";

const MAX_BATCH_HOLDS = 256;
/** Most holds that wait for the next batches. A further one fails with "overloaded". */
const MAX_QUEUED_HOLDS = 20_000;
/** Interval at which waiting holds are decided again, even if this instance knows of no released money. */
const POLL_MS = 50;
/** Time between two checks whether a silent instance holds money of an organization. */
const SILENT_LOOK_MS = 250;

/** Number of holds per key or subject that are decided again at first. More follow if these are granted. */
const FIRST_WIDTH = 4;
const WIDTH_GROWTH = 4;
const MAX_WIDTH = 4_096;

/**
 * The wait queue of a clustered gateway, which decides in the database. When money may have become available, the
 * first holds of each key or subject are decided again, and more of them while that succeeds.
 */
class HoldRequestQueue extends OrganizationQueue<PendingHold> {
  #width = FIRST_WIDTH;
  #hasGrown = false;

  /** Returns the next holds to decide again, at most `limit`. */
  next(limit: number): PendingHold[] {
    if (!this.#hasGrown) this.#width = FIRST_WIDTH;
    this.#hasGrown = false;
    const next: PendingHold[] = [];
    const counts = new Map<string, number>();
    for (const pending of this.waiting) {
      if (next.length >= limit) break;
      if (pending.state !== "waiting" || pending.isDue) continue;
      const group = this.groupOf(pending);
      const count = counts.get(group) ?? 0;
      if (count >= this.#width) continue;
      counts.set(group, count + 1);
      next.push(pending);
    }
    return next;
  }

  /** Widens the next selection, because a hold that was decided again has left the queue. */
  widen(): void {
    if (this.#hasGrown) return;
    this.#hasGrown = true;
    this.#width = Math.min(this.#width * WIDTH_GROWTH, MAX_WIDTH);
  }
}

/** Resolves true if an instance that has missed its heartbeats holds money of the organization. */
export type IsHeldBySilent = (organizationId: string) => Promise<boolean>;

/**
 * Sends pending holds to the database with the next ledger batch. Holds that are short only because of other
 * holds wait in their organization's queue. They are decided again when holds of this instance have ended, and
 * periodically because of other instances.
 */
export class HoldQueue implements HoldSource {
  readonly accounts: CurrentAccounts;
  readonly #clock: Clock;
  readonly #deadlines: HoldDeadlines;
  readonly #wakeLedger: () => void;
  readonly #queued = new IntrusiveList<PendingHold>();
  /** Extensions of running requests, so at most one for each. */
  readonly #extensions: HoldUnit[] = [];
  readonly #due = new Set<PendingHold>();
  readonly #lines = new Map<string, HoldRequestQueue>();
  readonly #awake = new Set<HoldRequestQueue>();
  readonly #timers = new Map<PendingHold, () => void>();
  /** Current checks for silent instances, by organization. */
  readonly #silentLooks = new Map<string, Promise<boolean>>();
  readonly #isHeldBySilent: IsHeldBySilent | undefined;
  #isPolling = false;

  constructor(
    clock: Clock,
    deadlines: HoldDeadlines,
    wakeLedger: () => void,
    isHeldBySilent?: IsHeldBySilent,
  ) {
    this.#clock = clock;
    this.#deadlines = deadlines;
    this.#wakeLedger = wakeLedger;
    this.#isHeldBySilent = isHeldBySilent;
    this.accounts = new CurrentAccounts(clock);
  }

  get hasWork(): boolean {
    const isAnyNew = this.#queued.length > 0 || this.#due.size > 0 || this.#awake.size > 0;
    return isAnyNew || this.#extensions.length > 0;
  }

  /** Adds a pending hold. Throws 503 if the queue is full. */
  submit(pending: PendingHold): void {
    if (this.#queued.length >= MAX_QUEUED_HOLDS) {
      throw overloaded("Too many requests are waiting. Try again shortly.");
    }
    this.#queued.add(pending);
    this.#wakeLedger();
  }

  /** Cancels a pending hold. If it is already being decided, the grant callback releases it. */
  giveUp(pending: PendingHold, error: unknown): void {
    pending.isGivenUp = true;
    if (pending.state === "taken" || pending.state === "ended") return;
    this.#queued.remove(pending);
    this.#end(pending, error);
  }

  /** Sends an extension of an open hold with the next batch. Rejects if nothing was written. */
  decideExtension(demand: HoldDemand): Promise<HoldVerdict> {
    return new Promise((decided, failed) => {
      this.#extensions.push({ demand, decided, failed });
      this.#wakeLedger();
    });
  }

  /** Decides waiting holds of the organization again, because money may have become available. */
  wake(organizationId: string): void {
    const line = this.#lines.get(organizationId);
    if (line === undefined) return;
    this.#awake.add(line);
    this.#wakeLedger();
  }

  take(): readonly HoldUnit[] {
    const units = this.#extensions.splice(0, MAX_BATCH_HOLDS);
    // Holds after their longest wait are first, because they are older than all others.
    for (const pending of this.#due) {
      if (units.length >= MAX_BATCH_HOLDS) return units;
      this.#due.delete(pending);
      units.push(this.#unitOf(pending));
    }
    for (const line of this.#awake) {
      if (units.length >= MAX_BATCH_HOLDS) return units;
      this.#awake.delete(line);
      for (const pending of line.next(MAX_BATCH_HOLDS - units.length)) {
        units.push(this.#unitOf(pending));
      }
    }
    while (units.length < MAX_BATCH_HOLDS) {
      const pending = this.#queued.oldest;
      if (pending === undefined) break;
      this.#queued.remove(pending);
      const { request } = pending;
      const blockedBy = this.#lines.get(request.organizationId)?.blocks(request);
      if (pending.isDue || blockedBy === undefined) units.push(this.#unitOf(pending));
      else this.#joinLine(pending, blockedBy);
    }
    return units;
  }

  #unitOf(pending: PendingHold): HoldUnit {
    pending.state = "taken";
    return {
      demand: pending.ask(this.accounts.of(pending.request)),
      decided: (verdict) => this.#decided(pending, verdict),
      failed: (error) => this.#end(pending, error),
    };
  }

  #decided(pending: PendingHold, verdict: HoldVerdict): void {
    const demand = pending.demand!;
    if (verdict.kind === "granted") {
      this.#leave(pending);
      pending.grant(verdict.holdNano, verdict.budgetNano, this.#clock.nowMs());
    } else if (verdict.kind === "revoked") {
      this.#end(pending, revoked(revokedHeadroom(demand, verdict.isActive)));
    } else if (verdict.kind !== "short") {
      this.#stay(pending, verdict.kind === "blocked" ? verdict.of : "key");
    } else {
      const { request } = pending;
      const headroom = headroomOf(request, demand, verdict);
      if (demand.manner === "last" || isShortBySpend(headroom, request)) {
        this.#leave(pending);
        pending.refuse(refusal(headroom, request), headroom);
        return;
      }
      this.#stay(pending, findShortage(headroom, request));
    }
  }

  #end(pending: PendingHold, error: unknown): void {
    this.#leave(pending);
    pending.refuse(error);
  }

  /** Keeps a hold in its queue, or adds it. */
  #stay(pending: PendingHold, shortOf: Shortage): void {
    if (pending.isGivenUp) {
      this.#leave(pending);
      pending.state = "ended";
      return;
    }
    if (!pending.isInQueue) {
      this.#joinLine(pending, shortOf);
      return;
    }
    pending.state = "waiting";
    this.#lines.get(pending.request.organizationId)!.note(pending, shortOf);
    if (pending.isDue) this.#lookLast(pending);
  }

  #joinLine(pending: PendingHold, shortOf: Shortage): void {
    const { organizationId } = pending.request;
    let line = this.#lines.get(organizationId);
    if (line === undefined) {
      line = new HoldRequestQueue();
      this.#lines.set(organizationId, line);
    }
    if (line.isFull) {
      // The queue is full, so the hold is decided now, without waiting.
      pending.isDue = true;
      pending.state = "queued";
      this.#queued.add(pending);
      return;
    }
    pending.isInQueue = true;
    // The hold that blocked this one has left the queue in the meantime.
    if (line.length === 0 && shortOf !== "organization") this.#awake.add(line);
    pending.state = "waiting";
    line.note(pending, shortOf);
    const beganMs = this.#clock.nowMs();
    this.#timers.set(
      pending,
      this.#deadlines.startWait(() => this.#endWait(pending, beganMs)),
    );
    this.#poll();
  }

  /**
   * Ends a hold's wait, or extends it if a silent instance holds money of the organization, which is released
   * soon.
   */
  #endWait(pending: PendingHold, beganMs: number): void {
    const isHeldBySilent = this.#isHeldBySilent;
    const isOver = this.#clock.nowMs() - beganMs >= MAX_WAIT_FOR_SILENT_MS;
    if (isHeldBySilent === undefined || isOver) {
      this.#setDue(pending);
      return;
    }
    void this.#lookForSilent(pending.request.organizationId, isHeldBySilent).then((isHeld) => {
      // The hold was granted or given up in the meantime.
      if (!this.#timers.has(pending)) return;
      const again = () => this.#endWait(pending, beganMs);
      if (isHeld) this.#timers.set(pending, this.#clock.after(SILENT_LOOK_MS, again));
      else this.#setDue(pending);
    });
  }

  #setDue(pending: PendingHold): void {
    pending.isDue = true;
    this.#timers.set(
      pending,
      this.#deadlines.startFinalDecision((error) => this.#tooLate(pending, error)),
    );
    this.#lookLast(pending);
  }

  /** Checks for silent instances once for all waiting requests of the organization. */
  #lookForSilent(organizationId: string, isHeldBySilent: IsHeldBySilent): Promise<boolean> {
    const underWay = this.#silentLooks.get(organizationId);
    if (underWay !== undefined) return underWay;
    const look = isHeldBySilent(organizationId)
      .catch(() => false)
      .finally(() => this.#silentLooks.delete(organizationId));
    this.#silentLooks.set(organizationId, look);
    return look;
  }

  #lookLast(pending: PendingHold): void {
    if (pending.state !== "waiting") return;
    this.#due.add(pending);
    this.#wakeLedger();
  }

  #tooLate(pending: PendingHold, error: unknown): void {
    const isInBatch = pending.state === "taken";
    this.#leave(pending);
    pending.isGivenUp = true;
    pending.refuse(error);
    if (isInBatch) pending.state = "taken";
  }

  /** Removes a hold from its queue and wakes the queue, because the hold may have blocked others. */
  #leave(pending: PendingHold): void {
    this.#timers.get(pending)?.();
    this.#timers.delete(pending);
    this.#due.delete(pending);
    const { organizationId } = pending.request;
    const line = this.#lines.get(organizationId);
    if (line?.has(pending) !== true) return;
    line.remove(pending);
    if (line.length === 0) {
      this.#lines.delete(organizationId);
      this.#awake.delete(line);
      return;
    }
    line.widen();
    this.#awake.add(line);
    this.#wakeLedger();
  }

  #poll(): void {
    if (this.#isPolling || this.#lines.size === 0) return;
    this.#isPolling = true;
    this.#clock.after(POLL_MS, () => {
      this.#isPolling = false;
      for (const organizationId of this.#lines.keys()) this.wake(organizationId);
      this.#poll();
    });
  }
}

/** Returns the accounts of requests that are admitted now. A request keeps its day and month. */
export class CurrentAccounts {
  readonly #clock: Clock;
  #day: Period;
  #month: Period;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#day = utcDay(clock.nowMs());
    this.#month = utcMonth(clock.nowMs());
  }

  of({
    organizationId,
    keyId,
    subjects,
  }: Pick<HoldRequest, "organizationId" | "keyId" | "subjects">): RequestAccounts {
    this.#roll(this.#clock.nowMs());
    const [day, month] = [this.#day.start, this.#month.start];
    return {
      orgAccount: orgAccountId(organizationId),
      dayAccount: dayAccountId(keyId, day),
      monthAccount: monthAccountId(keyId, month),
      subjectAccounts: subjects?.flatMap(({ budgetId }) => [
        subjectDayAccountId(budgetId, day),
        subjectMonthAccountId(budgetId, month),
      ]),
    };
  }

  #roll(nowMs: number): void {
    if (nowMs >= this.#day.startMs && nowMs < this.#day.endMs) return;
    this.#day = utcDay(nowMs);
    this.#month = utcMonth(nowMs);
  }
}
