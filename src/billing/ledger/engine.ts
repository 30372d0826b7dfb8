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
import { retryUntilWritten } from "../../../db/ledger/units.ts";
import type { Clock } from "../../lib/clock.ts";
import { FEMTO_PER_NANO } from "../../lib/money.ts";
import { emitExhaustedOf } from "./headroom.ts";
import { HoldDeadlines } from "./hold-wait-queue.ts";
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
import { Refunds, type UndeliveredChargeJournal } from "./undelivered-charge-journal.ts";

/** The dependencies of both engines. */
export interface MoneyDependencies {
  readonly ledger: GroupCommit;
  readonly keys: ApiKeyActors;
  readonly organizations: OrganizationActors;
  readonly subjectBudgets: SubjectBudgetActors;
  readonly clock: Clock;
  readonly instance: InstanceIdentity;
  /** Called when a provider's figures exceed the hold and were reduced to it. */
  readonly onClamped: (hold: Pick<Hold, "requestId">, clampedNano: bigint) => void;
  readonly onBackgroundError: (error: unknown) => void;
  readonly notes: UndeliveredChargeJournal;
}

/** The payer of a request. */
export interface Payer {
  readonly keyId: string;
  readonly organizationId: string;
  readonly subjectAccounts?: readonly string[] | undefined;
}

/** The checkpoint state of an open hold: none submitted, one submitted, or one known to be written. */
export interface Attempted {
  attempt: "none" | "asked for" | "written";
}

/**
 * The part that both engines share: pending charges and checkpoints, refunds, and the ends of holds that outlive
 * processes. Each engine stores and decides holds itself.
 */
export abstract class MoneyEngine implements ChargeOwner {
  protected readonly dependencies: MoneyDependencies;
  protected readonly holdDeadlines: HoldDeadlines;
  protected readonly settleDeadline: SettleDeadline;
  protected readonly ledger: GroupCommit;
  readonly #refunds: Refunds;

  constructor(dependencies: MoneyDependencies) {
    const { clock, ledger, notes, onBackgroundError } = dependencies;
    this.dependencies = dependencies;
    this.ledger = ledger;
    this.holdDeadlines = new HoldDeadlines(clock);
    this.settleDeadline = new SettleDeadline(clock, notes);
    this.#refunds = new Refunds({
      clock,
      notes,
      submit: (effect) => ledger.submit([effect]),
      onGiven: (settlement) => this.changedInLedger(settlement),
      onError: onBackgroundError,
    });
  }

  /** Called when the charge is durable. */
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

  /** Refunds a charge that was posted but whose answer was not sent, because the database answered too late. */
  refund(settlement: Settlement): void {
    this.#refunds.give(settlement);
  }

  /** Notes all unanswered charges, because this process ends immediately and will not send their answers. */
  noteUnanswered(): void {
    this.settleDeadline.noteWaiting();
  }

  /** Called when the ledger has refunded money, or ended a hold that was only in the ledger. */
  protected abstract changedInLedger(payer: Payer): void;

  /** Returns the charge that ends a hold, not posted yet. */
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

  /**
   * Writes a checkpoint. Resolves when it is durable. A checkpoint after the first one is retried until the hold
   * ends.
   */
  protected async writeCheckpoint(
    hold: Hold,
    of: Attempted,
    figures: ChargeFigures,
    isRunning: () => boolean,
  ): Promise<void> {
    if (of.attempt === "none") of.attempt = "asked for";
    const checkpoint: Checkpoint = checkpointOf(hold, figures);
    try {
      await retryUntilWritten(
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

/** Returns the hold request of a long hold, which waits and is rejected like any other. */
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

/** Places the holds. Returns the granted ones, and the errors of the others by id. */
export async function grantedAmong<Granted extends Hold>(
  requests: readonly LongHoldRequest[],
  hold: (request: HoldRequest) => Granted | Promise<Granted>,
): Promise<{ readonly granted: readonly Granted[]; readonly refused: Map<string, unknown> }> {
  const granted: Granted[] = [];
  const refused = new Map<string, unknown>();
  const holds = requests.map(async (request) => hold(requestOfLong(request)));
  for (const [at, result] of (await Promise.allSettled(holds)).entries()) {
    if (result.status === "fulfilled") granted.push(result.value);
    else refused.set(requests[at]!.id, result.reason);
  }
  return { granted, refused };
}
