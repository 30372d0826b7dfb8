import type { ApiKeyActors } from "../../actors/api-key/actor.ts";
import type { OrganizationActors } from "../../actors/organization/actor.ts";
import type { SubjectBudgetActors } from "../../actors/subject-budget/actor.ts";
import type { StatementEffect } from "../../db/ledger/effects.ts";
import type { GroupCommit } from "../../db/ledger/group-commit.ts";
import { endLongHoldEffect, type LongHold } from "../../db/ledger/long-holds.ts";
import type { Checkpoint, Settlement } from "../../db/ledger/rows.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { writtenInTheEnd } from "../../db/ledger/units.ts";
import type { Clock } from "../lib/clock.ts";
import type {
  ChargeFigures,
  Hold,
  HoldRequest,
  LongHoldRequest,
  SettlementFigures,
} from "./interface.ts";
import {
  type ChargeOwner,
  checkpointOf,
  PendingCharge,
  SettleDeadline,
  settlementOf,
} from "./pending-charge.ts";
import { Refunds, type UndeliveredNotes } from "./undelivered.ts";

/** What either engine is made from. */
export interface MoneyDependencies {
  readonly keys: ApiKeyActors;
  readonly organizations: OrganizationActors;
  readonly subjectBudgets: SubjectBudgetActors;
  readonly clock: Clock;
  readonly instance: InstanceIdentity;
  /** A provider's figures went beyond the hold and were cut to it. */
  readonly onClamped: (hold: Hold, clampedNano: bigint) => void;
  readonly onBackgroundError: (error: unknown) => void;
  readonly notes: UndeliveredNotes;
}

/** Who pays for a request. */
export interface Payer {
  readonly keyId: string;
  readonly organizationId: string;
  readonly subjectAccounts?: readonly string[] | undefined;
}

/** Of a running hold: whether a checkpoint was handed in, or one is known to be written. */
export interface Attempted {
  attempt: "none" | "asked for" | "written";
}

/**
 * What both engines do alike with the ledger: charges and checkpoints on their way, refunds, and the ends of
 * holds that outlive processes. Where holds stand, and who decides them, is each engine's own.
 */
export abstract class MoneyEngine implements ChargeOwner {
  protected readonly dependencies: MoneyDependencies;
  protected readonly settleDeadline: SettleDeadline;
  readonly #refunds: Refunds;
  #ledger: GroupCommit | undefined;

  constructor(dependencies: MoneyDependencies) {
    const { clock, notes, onBackgroundError } = dependencies;
    this.dependencies = dependencies;
    this.settleDeadline = new SettleDeadline(clock, notes);
    this.#refunds = new Refunds({
      clock,
      notes,
      submit: (effect) => this.ledger.submit([effect]),
      onGiven: (settlement) => this.changedInLedger(settlement),
      onError: onBackgroundError,
    });
  }

  /** The ledger and the engine call each other, so the two are made one after the other. */
  connect(ledger: GroupCommit): void {
    this.#ledger = ledger;
  }

  /** The charge is durable. */
  abstract charged(settlement: Settlement): void;
  abstract notCharged(settlement: Settlement): void;

  postLater(charge: PendingCharge): void {
    this.ledger.postLater(charge);
  }

  settleLong(id: string, figures: SettlementFigures, also?: StatementEffect): Promise<void> {
    return this.#endLong(id, figures, also);
  }

  releaseLong(id: string, also?: StatementEffect): Promise<void> {
    return this.#endLong(id, undefined, also);
  }

  /** A charge was posted whose answer never left, because the database answered too late. */
  refund(settlement: Settlement): void {
    this.#refunds.give(settlement);
  }

  /** This process ends at once: what was not answered never will be. */
  noteUnanswered(): void {
    this.settleDeadline.noteWaiting();
  }

  protected get ledger(): GroupCommit {
    return this.#ledger!;
  }

  /** The ledger has given money back, or ended a hold that stood only there. */
  protected abstract changedInLedger(payer: Payer): void;

  /** The charge that ends a hold; it is still to be posted. */
  protected chargeFor(
    hold: Hold,
    { attempt }: Attempted,
    figures: SettlementFigures,
    also: StatementEffect | undefined,
  ): PendingCharge {
    if (figures.clampedNano > 0n) this.dependencies.onClamped(hold, figures.clampedNano);
    const settlement = settlementOf(hold, figures, attempt !== "none");
    return new PendingCharge(this, this.settleDeadline, settlement, also);
  }

  /** Resolves when it is durable. One that follows another is tried until the hold ends. */
  protected async writeCheckpoint(
    hold: Hold,
    of: Attempted,
    figures: ChargeFigures,
    isRunning: () => boolean,
  ): Promise<void> {
    if (of.attempt === "none") of.attempt = "asked for";
    const checkpoint: Checkpoint = checkpointOf(hold, figures);
    try {
      await writtenInTheEnd(
        this.dependencies.clock,
        () => this.ledger.submit([{ kind: "checkpoint", checkpoint }]),
        () => of.attempt === "written" && isRunning(),
      );
      of.attempt = "written";
    } catch (error) {
      if (of.attempt === "asked for") of.attempt = "none";
      throw error;
    }
  }

  /** Charges a long hold, or, without figures, gives it back. Once: a second time changes nothing. */
  async #endLong(
    id: string,
    figures: SettlementFigures | undefined,
    also: StatementEffect | undefined,
  ): Promise<void> {
    let ended: LongHold | undefined;
    const effect = endLongHoldEffect(this.dependencies.instance, id, {
      ...(figures && { settlementOf: (hold: LongHold) => settlementOf(hold, figures, false) }),
      also,
      onEnd(hold) {
        ended = hold;
      },
    });
    await this.ledger.submit([effect]);
    if (ended !== undefined) this.changedInLedger(ended);
  }
}

const FEMTO_PER_NANO = 1_000_000n;

/** A long hold as any other is asked for: it waits, and is refused, like one. */
export function requestOfLong(long: LongHoldRequest): HoldRequest {
  return {
    requestId: long.id,
    organizationId: long.organizationId,
    keyId: long.keyId,
    subjects: long.subjects,
    fixedFemto: long.holdNano * FEMTO_PER_NANO,
    perTokenFemto: 0n,
    outputTokens: 0,
    isLimitExplicit: true,
    feeBasisPoints: 0n,
  };
}
