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
import { IntrusiveList } from "../../lib/age-order.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { type Period, utcDay, utcMonth } from "../../lib/utc-time.ts";
import type { HoldRequest } from "./interface.ts";
import type { PendingHold } from "./pending-hold.ts";
import {
  findShortage,
  headroomOf,
  isShortBySpend,
  refusal,
  revoked,
  revokedHeadroom,
} from "./refusal.ts";
import {
  MAX_WAIT_FOR_SILENT_MS,
  MAX_WAIT_MS,
  MAX_WAITING_REQUESTS,
  type Shortage,
  WaitingLine,
} from "./waiting-line.ts";

const MAX_BATCH_HOLDS = 256;
/** Holds that wait for the next batches; a further one fails with "overloaded". */
const MAX_QUEUED_HOLDS = 20_000;
/** How often those who wait are asked for again although nothing is known to have come free here. */
const POLL_MS = 50;
/** Between two looks whether a silent instance still holds money of an organization. */
const SILENT_LOOK_MS = 250;
/** How long the last look may take where the database does not answer. */
const MAX_LAST_LOOK_MS = 500;

/** How many of each key or subject are asked for again at first; more follow where these get what they want. */
const FIRST_WIDTH = 4;
const WIDTH_GROWTH = 4;
const MAX_WIDTH = 4_096;

/**
 * The waiting line of a clustered gateway, which asks the database. Where money may have come free the first
 * of each key or subject are asked for again, and more of them as long as that brings something.
 */
class HoldRequestQueue extends WaitingLine<PendingHold> {
  #width = FIRST_WIDTH;
  #hasGrown = false;

  /** The next to be asked for again, at most so many. */
  next(limit: number): PendingHold[] {
    if (!this.#hasGrown) this.#width = FIRST_WIDTH;
    this.#hasGrown = false;
    const next: PendingHold[] = [];
    const counts = new Map<string, number>();
    for (const pending of this.waiting) {
      if (next.length >= limit) break;
      if (pending.place !== "waiting" || pending.isDue) continue;
      const group = this.groupOf(pending);
      const count = counts.get(group) ?? 0;
      if (count >= this.#width) continue;
      counts.set(group, count + 1);
      next.push(pending);
    }
    return next;
  }

  /** One of those that were asked for again has left the line. */
  widen(): void {
    if (this.#hasGrown) return;
    this.#hasGrown = true;
    this.#width = Math.min(this.#width * WIDTH_GROWTH, MAX_WIDTH);
  }
}

/** Whether an instance that has missed its heartbeats holds money of the organization. */
export type IsHeldBySilent = (organizationId: string) => Promise<boolean>;

/**
 * Puts the holds that are asked for before the database, with the next batch of the ledger. Those that are
 * short only because of other holds wait in their organization's line: they are asked for again when holds
 * of this instance have ended, and at a steady rate for those of the others.
 */
export class HoldQueue implements HoldSource {
  readonly accounts: AccountsNow;
  readonly #clock: Clock;
  readonly #wakeLedger: () => void;
  readonly #queued = new IntrusiveList<PendingHold>();
  /** Of running requests: no more than there are of these. */
  readonly #extensions: HoldUnit[] = [];
  readonly #due = new Set<PendingHold>();
  readonly #lines = new Map<string, HoldRequestQueue>();
  readonly #awake = new Set<HoldRequestQueue>();
  readonly #timers = new Map<PendingHold, () => void>();
  /** Looks that are under way, by organization. */
  readonly #silentLooks = new Map<string, Promise<boolean>>();
  readonly #isHeldBySilent: IsHeldBySilent | undefined;
  #isPolling = false;

  constructor(clock: Clock, wakeLedger: () => void, isHeldBySilent?: IsHeldBySilent) {
    this.#clock = clock;
    this.#wakeLedger = wakeLedger;
    this.#isHeldBySilent = isHeldBySilent;
    this.accounts = new AccountsNow(clock);
  }

  get hasWork(): boolean {
    const isAnyNew = this.#queued.length > 0 || this.#due.size > 0 || this.#awake.size > 0;
    return isAnyNew || this.#extensions.length > 0;
  }

  /** Throws 503 where too many stand here already. */
  submit(pending: PendingHold): void {
    if (this.#queued.length >= MAX_QUEUED_HOLDS) {
      throw new GatewayError(
        "overloaded",
        "Too many requests are waiting here. Try again shortly.",
        {
          retryAfterSeconds: 1,
        },
      );
    }
    this.#queued.add(pending);
    this.#wakeLedger();
  }

  /** Cancels a pending hold. If it is already being decided, the grant callback releases it. */
  giveUp(pending: PendingHold, error: unknown): void {
    pending.isGivenUp = true;
    if (pending.place === "taken" || pending.place === "ended") return;
    this.#queued.remove(pending);
    this.#end(pending, error);
  }

  /** Asks for a hold that runs to be raised, with the next batch. Rejects where nothing was written. */
  decideExtension(demand: HoldDemand): Promise<HoldVerdict> {
    return new Promise((decided, failed) => {
      this.#extensions.push({ demand, decided, failed });
      this.#wakeLedger();
    });
  }

  /** Money of the organization may have come free. */
  wake(organizationId: string): void {
    const line = this.#lines.get(organizationId);
    if (line === undefined) return;
    this.#awake.add(line);
    this.#wakeLedger();
  }

  take(): readonly HoldUnit[] {
    const units = this.#extensions.splice(0, MAX_BATCH_HOLDS);
    // Those whose time is up came before all others.
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
      const behind = this.#lines.get(request.organizationId)?.blocks(request);
      if (pending.isDue || behind === undefined) units.push(this.#unitOf(pending));
      else this.#joinLine(pending, behind);
    }
    return units;
  }

  #unitOf(pending: PendingHold): HoldUnit {
    pending.place = "taken";
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
      this.#stay(pending, verdict.kind === "behind" ? verdict.of : "key");
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

  /** Stays in its line, or joins it. */
  #stay(pending: PendingHold, shortOf: Shortage): void {
    if (pending.isGivenUp) {
      this.#leave(pending);
      pending.place = "ended";
      return;
    }
    if (!pending.isInLine) {
      this.#joinLine(pending, shortOf);
      return;
    }
    pending.place = "waiting";
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
    if (line.length >= MAX_WAITING_REQUESTS) {
      // There is no place for it to wait: it is refused where it is short now.
      pending.isDue = true;
      pending.place = "queued";
      this.#queued.add(pending);
      return;
    }
    pending.isInLine = true;
    // It was put behind one that has left meanwhile.
    if (line.length === 0 && shortOf !== "organization") this.#awake.add(line);
    pending.place = "waiting";
    line.note(pending, shortOf);
    const beganMs = this.#clock.nowMs();
    this.#timers.set(
      pending,
      this.#clock.after(MAX_WAIT_MS, () => this.#timeIsUp(pending, beganMs)),
    );
    this.#poll();
  }

  /** If a silent instance holds what the request waits for, that is free soon: then it waits on. */
  #timeIsUp(pending: PendingHold, beganMs: number): void {
    const isHeldBySilent = this.#isHeldBySilent;
    const isOver = this.#clock.nowMs() - beganMs >= MAX_WAIT_FOR_SILENT_MS;
    if (isHeldBySilent === undefined || isOver) {
      this.#setDue(pending);
      return;
    }
    void this.#lookForSilent(pending.request.organizationId, isHeldBySilent).then((isHeld) => {
      // Granted or given up meanwhile.
      if (!this.#timers.has(pending)) return;
      const again = () => this.#timeIsUp(pending, beganMs);
      if (isHeld) this.#timers.set(pending, this.#clock.after(SILENT_LOOK_MS, again));
      else this.#setDue(pending);
    });
  }

  #setDue(pending: PendingHold): void {
    pending.isDue = true;
    this.#timers.set(
      pending,
      this.#clock.after(MAX_LAST_LOOK_MS, () => this.#tooLate(pending)),
    );
    this.#lookLast(pending);
  }

  /** One look for all requests of the organization that wait at the moment. */
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
    if (pending.place !== "waiting") return;
    this.#due.add(pending);
    this.#wakeLedger();
  }

  #tooLate(pending: PendingHold): void {
    const isTaken = pending.place === "taken";
    this.#leave(pending);
    pending.isGivenUp = true;
    pending.refuse(
      new GatewayError("database_unavailable", "The gateway's database does not answer.", {
        retryAfterSeconds: 1,
      }),
    );
    if (isTaken) pending.place = "taken";
  }

  /** A request that leaves a line may have stood before others. */
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

/** The accounts of requests that are admitted now: their day and month stay theirs. */
export class AccountsNow {
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
