import type { ApiKeyActors } from "../../../actors/api-key/actor.ts";
import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import type { SubjectBudgetActors } from "../../../actors/subject-budget/actor.ts";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { GroupCommit } from "../../../db/ledger/group-commit.ts";
import {
  type AlsoEnded,
  endLongHoldsEffect,
  type LongHold,
} from "../../../db/ledger/long-holds.ts";
import type { Checkpoint, Settlement } from "../../../db/ledger/rows.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import { writtenInTheEnd } from "../../../db/ledger/units.ts";
import type { Clock } from "../../lib/clock.ts";
import type {
  ChargeFigures,
  Hold,
  HoldRequest,
  LongHoldRequest,
  MoneyPort,
  SettlementFigures,
} from "./interface.ts";
import {
  type ChargeOwner,
  checkpointOf,
  PendingCharge,
  SettleDeadline,
  settlementOf,
} from "./pending-charge.ts";
import { emitExhaustedOf } from "./refusal.ts";
import { Refunds, type UndeliveredChargeJournal } from "./undelivered.ts";

/** What either engine is made from. */
export interface MoneyDependencies {
  readonly keys: ApiKeyActors;
  readonly organizations: OrganizationActors;
  readonly subjectBudgets: SubjectBudgetActors;
  readonly clock: Clock;
  readonly instance: InstanceIdentity;
  /** A provider's figures went beyond the hold and were cut to it. */
  readonly onClamped: (hold: Pick<Hold, "requestId">, clampedNano: bigint) => void;
  readonly onBackgroundError: (error: unknown) => void;
  readonly notes: UndeliveredChargeJournal;
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

  noteUsedUp(...[key, periods]: Parameters<MoneyPort["noteUsedUp"]>): Promise<void> {
    return emitExhaustedOf(this.dependencies, key, periods);
  }

  postAfterDelay(charge: PendingCharge): void {
    this.ledger.postAfterDelay(charge);
  }

  settleLong(id: string, figures: SettlementFigures, also?: StatementEffect): Promise<void> {
    return this.endLong(new Map([[id, figures]]), also);
  }

  releaseLong(id: string, also?: StatementEffect): Promise<void> {
    return this.endLong(new Map([[id, undefined]]), also);
  }

  async endLong(
    ends: ReadonlyMap<string, SettlementFigures | undefined>,
    also?: AlsoEnded,
  ): Promise<void> {
    let ended: readonly LongHold[] = [];
    const effect = endLongHoldsEffect(this.dependencies.instance, [...ends.keys()], {
      settlementOf(hold) {
        const figures = ends.get(hold.requestId);
        return figures && settlementOf(hold, figures, false);
      },
      also,
      onEnd(holds) {
        ended = holds;
      },
    });
    await this.ledger.submit([effect]);
    for (const hold of ended) {
      const clampedNano = ends.get(hold.requestId)?.clampedNano ?? 0n;
      if (clampedNano > 0n) this.dependencies.onClamped(hold, clampedNano);
    }
    const payers = new Map(ended.map((hold) => [`${hold.keyId} ${hold.subjectAccounts}`, hold]));
    for (const payer of payers.values()) this.changedInLedger(payer);
  }

  async holdLong(request: LongHoldRequest, also?: StatementEffect): Promise<void> {
    const refused = await this.holdLongs([request], () => also);
    if (refused.has(request.id)) throw refused.get(request.id);
  }

  abstract holdLongs(
    requests: readonly LongHoldRequest[],
    alsoOf: (held: ReadonlySet<string>) => StatementEffect | undefined,
  ): Promise<ReadonlyMap<string, unknown>>;

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
}

const FEMTO_PER_NANO = 1_000_000n;

/** A long hold as any other is asked for: it waits, and is refused, like one. */
function requestOfLong(long: LongHoldRequest): HoldRequest {
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

/** Those that are granted, and what refuses the others, by name. */
export async function grantedAmong<Granted extends Hold>(
  requests: readonly LongHoldRequest[],
  hold: (request: HoldRequest) => Granted | Promise<Granted>,
): Promise<{ readonly granted: readonly Granted[]; readonly refused: Map<string, unknown> }> {
  const granted: Granted[] = [];
  const refused = new Map<string, unknown>();
  const asking = requests.map(async (request) => hold(requestOfLong(request)));
  for (const [at, asked] of (await Promise.allSettled(asking)).entries()) {
    if (asked.status === "fulfilled") granted.push(asked.value);
    else refused.set(requests[at]!.id, asked.reason);
  }
  return { granted, refused };
}
