import type { ApiKeyActors } from "../../actors/api-key/actor.ts";
import type { StatementEffect } from "../../db/ledger/effects.ts";
import type { GroupCommit } from "../../db/ledger/group-commit.ts";
import { keepHoldEffect, placeLongHoldEffect } from "../../db/ledger/long-holds.ts";
import type { Settlement } from "../../db/ledger/rows.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { ChurningMap } from "../lib/churning-map.ts";
import type { Clock } from "../lib/clock.ts";
import { isFree } from "./decide-hold.ts";
import { GiveBacks } from "./give-backs.ts";
import { HoldQueue } from "./hold-queue.ts";
import type {
  ChargeFigures,
  Hold,
  HoldRequest,
  LongHoldRequest,
  MoneyPort,
  SettlementFigures,
} from "./interface.ts";
import { endLongHold, type LongHoldEnds, requestOfLong } from "./long-holds.ts";
import { type ChargeOwner, PendingCharge } from "./pending-charge.ts";
import { holdOf, PendingHold, type RunnableHold } from "./pending-hold.ts";
import { Refunds } from "./refund.ts";
import { SettleDeadline } from "./settle-deadline.ts";
import { checkpointOf, notHeld, settlementOf } from "./settlement.ts";
import { tellExhausted } from "./tell-exhausted.ts";
import type { UndeliveredNotes } from "./undelivered.ts";
import { writtenInTheEnd } from "./write-again.ts";

/** A hold that has not ended, as this instance sees it. */
interface RunningHold {
  readonly hold: RunnableHold;
  /** Whether a checkpoint was handed in, or is known to be written. */
  attempt: "none" | "asked for" | "written";
  checkpointing: Promise<void> | undefined;
  settling: Promise<void> | undefined;
  /** Set while an extension is decided. */
  extending: Promise<boolean> | undefined;
}

export interface ClusteredMoneyDependencies {
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
 * accounts, so no two instances give the same money away. No provider is called before that row is durable.
 */
export class ClusteredMoney implements MoneyPort, ChargeOwner {
  readonly holdQueue: HoldQueue;
  readonly #dependencies: ClusteredMoneyDependencies;
  readonly #running = new ChurningMap<RunningHold>();
  readonly #settleDeadline: SettleDeadline;
  readonly #refunds: Refunds;
  readonly #giveBacks: GiveBacks;
  readonly #longHoldEnds: LongHoldEnds;
  #ledger: GroupCommit | undefined;

  constructor(dependencies: ClusteredMoneyDependencies) {
    this.#dependencies = dependencies;
    this.holdQueue = new HoldQueue(dependencies.clock, () => this.#ledger!.wake());
    this.#settleDeadline = new SettleDeadline(dependencies.clock, dependencies.notes);
    this.#refunds = new Refunds({
      clock: dependencies.clock,
      notes: dependencies.notes,
      submit: (effect) => this.#ledger!.submit([effect]),
      onGiven: ({ organizationId }) => this.holdQueue.wake(organizationId),
      onError: dependencies.onBackgroundError,
    });
    this.#giveBacks = new GiveBacks({
      clock: dependencies.clock,
      ledger: () => this.#ledger!,
      onGivenBack: (organizationId) => this.holdQueue.wake(organizationId),
      onError: dependencies.onBackgroundError,
    });
    this.#longHoldEnds = {
      instance: dependencies.instance,
      submit: (effect) => this.#ledger!.submit([effect]),
      ended: ({ organizationId }) => this.holdQueue.wake(organizationId),
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
    return isFree(request) ? this.#holdNothing(request) : this.#ask(request);
  }

  async extend({ requestId }: Hold, moreNano: bigint): Promise<boolean> {
    const running = this.#running.get(requestId);
    // One at a time: each asks for the amount that the hold is to come to.
    while (running?.extending !== undefined) await running.extending.catch(() => {});
    if (running === undefined || running.settling !== undefined) return false;
    if (this.#running.get(requestId) !== running) return false;
    const extending = this.#extend(running.hold, running.hold.holdNano + moreNano);
    running.extending = extending;
    try {
      return await extending;
    } finally {
      running.extending = undefined;
    }
  }

  /** The hold of what has cost nothing so far has no row yet: it is placed as any other. */
  async #extend(hold: RunnableHold, toNano: bigint): Promise<boolean> {
    const { requestId, organizationId, keyId, orgAccount, dayAccount, monthAccount } = hold;
    const verdict = await this.holdQueue.decideExtension({
      requestId,
      organizationId,
      keyId,
      orgAccount,
      dayAccount,
      monthAccount,
      fullNano: toNano,
      leastNano: toNano,
      mostNano: toNano,
      manner: "last",
      ...(hold.holdNano > 0n && { extends: true as const }),
    });
    if (verdict.kind !== "granted") return false;
    hold.holdNano = toNano;
    return true;
  }

  async checkpoint(hold: Hold, figures: ChargeFigures): Promise<void> {
    const running = this.#running.get(hold.requestId);
    // Behind a settlement a checkpoint would bring back the attempt that it removed.
    if (running === undefined || running.settling !== undefined) return;
    const writing = this.#writeCheckpoint(running, figures);
    running.checkpointing = writing;
    await writing;
  }

  async #writeCheckpoint(running: RunningHold, figures: ChargeFigures): Promise<void> {
    const { hold } = running;
    if (running.attempt === "none") running.attempt = "asked for";
    const checkpoint = checkpointOf(hold, figures);
    try {
      await writtenInTheEnd(
        this.#dependencies.clock,
        () => this.#ledger!.submit([{ kind: "checkpoint", checkpoint }]),
        () =>
          running.attempt === "written" &&
          running.settling === undefined &&
          this.#running.has(hold.requestId),
      );
      running.attempt = "written";
    } catch (error) {
      if (running.attempt === "asked for") running.attempt = "none";
      throw error;
    }
  }

  settle(hold: Hold, figures: SettlementFigures, also?: StatementEffect): Promise<void> {
    const running = this.#running.get(hold.requestId);
    if (running === undefined) return Promise.reject(notHeld(hold));
    if (running.settling !== undefined) return running.settling;
    if (figures.clampedNano > 0n) this.#dependencies.onClamped(hold, figures.clampedNano);
    const settlement = settlementOf(hold, figures, running.attempt !== "none");
    const charge = new PendingCharge(this, this.#settleDeadline, settlement, also);
    running.settling = charge.settled;
    behind(running.extending, () => this.#ledger!.post(charge));
    return charge.settled;
  }

  charged({ requestId }: Settlement): void {
    this.#running.delete(requestId);
  }

  notCharged({ requestId }: Settlement): void {
    const running = this.#running.get(requestId);
    if (running === undefined) return;
    running.settling = undefined;
    this.release(running.hold);
  }

  postLater(charge: PendingCharge): void {
    this.#ledger!.postLater(charge);
  }

  release(hold: Hold): void {
    const running = this.#running.get(hold.requestId);
    // What is being charged is not free, even after its caller's deadline. Nor is what a reaper
    // would charge: it stays held.
    if (running === undefined || running.settling !== undefined) return;
    if (running.attempt === "written") return;
    this.#running.delete(hold.requestId);
    if (running.attempt === "none") {
      behind(running.extending, () => this.#giveBacks.giveBack(running.hold, false));
    } else {
      // Nothing was delivered: the checkpoint goes too, once it is known what became of it.
      const giveBack = () =>
        behind(running.extending, () => this.#giveBacks.giveBack(running.hold, true));
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
    for (const organizationId of organizations) this.holdQueue.wake(organizationId);
  }

  /** A charge was posted whose answer never left, because the database answered too late. */
  refund(settlement: Settlement): void {
    this.#refunds.give(settlement);
  }

  /** This process ends at once: what was not answered never will be. */
  noteUnanswered(): void {
    this.#settleDeadline.noteWaiting();
  }

  /** What costs nothing needs no row. */
  #holdNothing(request: HoldRequest): Hold {
    const size = { holdNano: 0n, outputTokens: request.outputTokens };
    const accounts = this.holdQueue.accounts.of(request);
    const hold = holdOf(request, accounts, size, this.#dependencies.clock.nowMs());
    this.#begin(hold);
    return hold;
  }

  #begin(hold: RunnableHold): void {
    this.#running.set(hold.requestId, {
      hold,
      attempt: "none",
      checkpointing: undefined,
      settling: undefined,
      extending: undefined,
    });
  }

  #ask(request: HoldRequest): Promise<Hold> {
    return new Promise((resolve, reject) => {
      let endDeadline = (): void => {};
      const pending = new PendingHold(request, {
        granted: (hold) => {
          endDeadline();
          if (pending.isGivenUp) return this.#giveBacks.giveBack(hold, false);
          this.#begin(hold);
          resolve(hold);
        },
        refused: (error, headroom) => {
          endDeadline();
          if (headroom === undefined) reject(error);
          else void tellExhausted(this.#dependencies, request, headroom).then(() => reject(error));
        },
      });
      this.holdQueue.submit(pending);
      endDeadline = this.#settleDeadline.begin((error) => {
        // One that waits for others has a time of its own.
        if (pending.isInLine || pending.place === "ended") return;
        this.holdQueue.giveUp(pending, error);
        reject(error);
      });
    });
  }
}

/** A hold ends only when it is known what it has come to. */
function behind(extending: Promise<boolean> | undefined, end: () => void): void {
  if (extending === undefined) end();
  else extending.then(end, end);
}
