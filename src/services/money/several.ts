import { sqlState } from "../../../db/client.ts";
import { FENCED, type InstanceIdentity } from "../../../db/ledger/commit-batch.ts";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { Abandonment, GroupCommit } from "../../../db/ledger/group-commit.ts";
import { keepHoldEffect, placeLongHoldEffect } from "../../../db/ledger/long-holds.ts";
import type { Settlement } from "../../../db/ledger/rows.ts";
import type { Clock } from "../../lib/clock.ts";
import { clientClosed } from "../../lib/errors.ts";
import type { ApiKeyActors } from "./alone.ts";
import { holdFor, isFree } from "./decide-hold.ts";
import { HoldDesk } from "./hold-desk.ts";
import type {
  ChargeFigures,
  Hold,
  HoldRequest,
  LongHoldRequest,
  MoneyPort,
  SettlementFigures,
} from "./interface.ts";
import { KnownRooms } from "./known-rooms.ts";
import { endLongHold, type LongHoldEnds, requestOfLong } from "./long-holds.ts";
import { holdOf, PendingHold } from "./pending-hold.ts";
import { Refunds } from "./refund.ts";
import type { RunningHold } from "./running-hold.ts";
import { SettlePatience } from "./settle-patience.ts";
import { settlementOf, withinHold } from "./settlement.ts";
import { tellExhausted } from "./tell-exhausted.ts";
import type { UndeliveredNotes } from "./undelivered.ts";

const RELEASE_RETRY_MS = 1_000;

export interface SeveralMoneyDependencies {
  /** Remember for which periods budget.exhausted went out. */
  readonly keys: ApiKeyActors;
  readonly clock: Clock;
  readonly instance: InstanceIdentity;
  /** A provider's figures went beyond the hold and were cut to it. */
  readonly onClamped: (hold: Hold, clampedNano: bigint) => void;
  readonly onBackgroundError: (error: unknown) => void;
  readonly notes: UndeliveredNotes;
}

/**
 * Money where several instances share a database: a hold is a row in it, inserted under the locks of its
 * accounts, so no two instances give the same money away. While there is ample money a request begins
 * before its hold is durable; its hold and its charge may then be one commit.
 */
export class SeveralMoney implements MoneyPort {
  readonly desk: HoldDesk;
  readonly rooms: KnownRooms;
  readonly #dependencies: SeveralMoneyDependencies;
  readonly #running = new Map<string, RunningHold>();
  readonly #patience: SettlePatience;
  readonly #refunds: Refunds;
  readonly #longHoldEnds: LongHoldEnds;
  #ledger: GroupCommit | undefined;

  constructor(dependencies: SeveralMoneyDependencies) {
    this.#dependencies = dependencies;
    this.desk = new HoldDesk(dependencies.clock, () => this.#ledger!.wake());
    this.rooms = new KnownRooms(dependencies.clock);
    this.#patience = new SettlePatience(dependencies.clock, dependencies.notes);
    this.#refunds = new Refunds({
      notes: dependencies.notes,
      submit: (effect) => this.#ledger!.submit([effect]),
      onGiven: ({ organizationId }) => this.desk.wake(organizationId),
      onError: dependencies.onBackgroundError,
    });
    this.#longHoldEnds = {
      instance: dependencies.instance,
      submit: (effect) => this.#ledger!.submit([effect]),
      ended: ({ organizationId }) => this.desk.wake(organizationId),
    };
  }

  /** The ledger asks the desk for holds, so the two are made one after the other. */
  connect(ledger: GroupCommit): void {
    this.#ledger = ledger;
  }

  get outstandingHolds(): number {
    return this.#running.size;
  }

  hold(request: HoldRequest): Hold | Promise<Hold> {
    if (isFree(request)) return this.#holdNothing(request);
    return (request.mayBeginEarly === true && this.#beginEarly(request)) || this.#ask(request);
  }

  async checkpoint(hold: Hold, figures: ChargeFigures): Promise<void> {
    const running = this.#running.get(hold.requestId);
    // Behind a settlement a checkpoint would bring back the attempt that it removed.
    if (running === undefined || running.settling !== undefined) return;
    const writing = this.#writeCheckpoint(running, figures);
    running.checkpointing = writing;
    await writing;
  }

  settle(hold: Hold, figures: SettlementFigures, also?: StatementEffect): Promise<void> {
    const running = this.#running.get(hold.requestId);
    if (running === undefined) return Promise.resolve();
    if (running.settling !== undefined) return running.settling;
    if (figures.clampedNano > 0n) this.#dependencies.onClamped(hold, figures.clampedNano);
    const settlement = settlementOf(hold, figures, running.attempt !== "none");
    const abandonment = { isAbandoned: false };
    const posted = this.#post(running, settlement, abandonment, also).then(
      () => void this.#running.delete(hold.requestId),
      (error) => {
        running.settling = undefined;
        // Nothing was posted.
        this.release(hold);
        throw error;
      },
    );
    // What was delivered has to be charged, however long it takes; the rest can still be given up.
    running.settling = settlement.hasAttempt
      ? posted
      : this.#patience.within(posted, abandonment, settlement, also);
    return running.settling;
  }

  release(hold: Hold): void {
    const running = this.#running.get(hold.requestId);
    // What is being charged is not free, even where its caller has lost patience. Nor is what a reaper
    // would charge: it stays held.
    if (running === undefined || running.settling !== undefined) return;
    if (running.attempt === "written") return;
    this.#running.delete(hold.requestId);
    if (running.early !== undefined) this.desk.giveUp(running.early, clientClosed());
    else if (running.attempt === "none") this.#giveBack(hold, false);
    else {
      // Nothing was delivered: the checkpoint goes too, once it is known what became of it.
      const giveBack = () => this.#giveBack(hold, true);
      running.checkpointing!.then(giveBack, giveBack);
    }
  }

  async holdLong(request: LongHoldRequest, also?: StatementEffect): Promise<void> {
    const hold = await this.hold(requestOfLong(request));
    const { instance } = this.#dependencies;
    // What costs nothing has no row yet.
    const effect =
      hold.holdNano === 0n
        ? placeLongHoldEffect(hold, also)
        : keepHoldEffect(instance, request.id, also);
    try {
      await this.#ledger!.submit([effect]);
    } catch (error) {
      this.release(hold);
      throw error;
    }
    this.#running.delete(request.id);
  }

  settleLong(id: string, figures: SettlementFigures, also?: StatementEffect): Promise<void> {
    return endLongHold(this.#longHoldEnds, id, figures, also);
  }

  releaseLong(id: string, also?: StatementEffect): Promise<void> {
    return endLongHold(this.#longHoldEnds, id, undefined, also);
  }

  /** Holds of these were charged by a batch that is durable. */
  committed(settlements: readonly Settlement[]): void {
    const organizations = new Set(settlements.map(({ organizationId }) => organizationId));
    for (const organizationId of organizations) this.desk.wake(organizationId);
  }

  /** A charge was posted whose answer never left, because the database answered too late. */
  refund(settlement: Settlement): void {
    this.#refunds.give(settlement);
  }

  /** This process ends at once: what was not answered never will be. */
  noteUnanswered(): void {
    this.#patience.noteWaiting();
  }

  /** What costs nothing needs no row. */
  #holdNothing(request: HoldRequest): Hold {
    const size = { holdNano: 0n, outputTokens: request.outputTokens };
    const accounts = this.desk.accounts.of(request);
    const hold = holdOf(request, accounts, size, this.#dependencies.clock.nowMs());
    this.#begin(hold, undefined);
    return hold;
  }

  #begin(hold: Hold, early: PendingHold | undefined): void {
    this.#running.set(hold.requestId, {
      hold,
      early,
      attempt: "none",
      checkpointing: undefined,
      settling: undefined,
    });
  }

  #ask(request: HoldRequest): Promise<Hold> {
    return new Promise((resolve, reject) => {
      let endPatience = (): void => {};
      const pending = new PendingHold(request, false, {
        granted: (hold) => {
          endPatience();
          if (pending.isGivenUp) return this.#giveBack(hold, false);
          this.#begin(hold, undefined);
          resolve(hold);
        },
        refused: (error, headroom) => {
          endPatience();
          if (headroom === undefined) reject(error);
          else void tellExhausted(this.#dependencies, request, headroom).then(() => reject(error));
        },
      });
      this.desk.submit(pending);
      endPatience = this.#patience.begin((error) => {
        // One that waits for others has a time of its own.
        if (pending.isInLine || pending.place === "ended") return;
        this.desk.giveUp(pending, error);
        reject(error);
      });
    });
  }

  /** A hold on which its request may begin at once; undefined where it may not be granted. */
  #beginEarly(request: HoldRequest): Hold | undefined {
    const accounts = this.desk.accounts.of(request);
    const fullNano = holdFor(request, request.outputTokens);
    const reservation = this.rooms.reserve(accounts, fullNano);
    if (reservation === undefined) return undefined;
    const { promise: confirmed, resolve, reject } = Promise.withResolvers<void>();
    // Whoever needs to know asks; the others are told by their checkpoint or their charge.
    confirmed.catch(() => {});
    const size = { holdNano: fullNano, outputTokens: request.outputTokens };
    const nowMs = this.#dependencies.clock.nowMs();
    const hold: Hold = { ...holdOf(request, accounts, size, nowMs), confirmed };
    const pending = new PendingHold(request, true, {
      granted: () => {
        this.rooms.end(reservation);
        this.#confirm(hold, pending);
        resolve();
      },
      refused: (error) => {
        this.rooms.end(reservation);
        reject(error);
      },
    });
    pending.ask(accounts);
    try {
      this.desk.submit(pending);
    } catch (error) {
      this.rooms.end(reservation);
      throw error;
    }
    this.#begin(hold, pending);
    return hold;
  }

  /** An early hold is durable, or was charged with the same commit. */
  #confirm(hold: Hold, pending: PendingHold): void {
    const running = this.#running.get(hold.requestId);
    if (running !== undefined) running.early = undefined;
    else if (pending.settlement === undefined) {
      this.#giveBack(hold, pending.checkpoint !== undefined);
    }
  }

  async #writeCheckpoint(running: RunningHold, figures: ChargeFigures): Promise<void> {
    const { hold, early } = running;
    const chargeNano = withinHold(hold, figures.chargeNano);
    const { confirmed: _, ...held } = hold;
    const checkpoint = { ...held, ...figures, chargeNano, startedAtMs: hold.admittedAtMs };
    if (running.attempt === "none") running.attempt = "asked for";
    try {
      if (early !== undefined) {
        if (early.place === "queued") early.checkpoint = checkpoint;
        await hold.confirmed;
      }
      // With an early hold its latest checkpoint was written.
      if (early?.checkpoint === undefined) {
        if (!this.#running.has(hold.requestId) || running.settling !== undefined) return;
        await this.#ledger!.submit([{ kind: "checkpoint", checkpoint }]);
      }
      running.attempt = "written";
    } catch (error) {
      if (running.attempt === "asked for") running.attempt = "none";
      throw error;
    }
  }

  /** Resolves when the charge is durable. */
  async #post(
    running: RunningHold,
    settlement: Settlement,
    abandonment: Abandonment,
    also: StatementEffect | undefined,
  ): Promise<void> {
    const { hold, early } = running;
    if (early !== undefined) {
      if (also === undefined && early.place === "queued") {
        early.settlement = settlement;
        early.abandonment = abandonment;
      }
      await hold.confirmed;
      if (early.settlement === settlement) {
        if (abandonment.isAbandoned) this.refund(settlement);
        return;
      }
      if (abandonment.isAbandoned) throw new Error("given up before it was written");
    }
    const settle = { kind: "settle", settlement } as const;
    await this.#ledger!.submit(also === undefined ? [settle] : [settle, also], abandonment);
  }

  /** Retried until it is written; what dies with this instance is left to a reaper. */
  #giveBack(hold: Hold, hasAttempt: boolean): void {
    if (hold.holdNano === 0n && !hasAttempt) return;
    const { requestId, orgAccount, dayAccount, monthAccount, organizationId } = hold;
    const release = { requestId, orgAccount, dayAccount, monthAccount, hasAttempt };
    this.#ledger!.submit([{ kind: "release", release }]).then(
      () => this.desk.wake(organizationId),
      (error) => {
        if (this.#ledger!.isClosed || sqlState(error) === FENCED) return;
        this.#dependencies.onBackgroundError(error);
        this.#dependencies.clock.after(RELEASE_RETRY_MS, () => this.#giveBack(hold, hasAttempt));
      },
    );
  }
}
