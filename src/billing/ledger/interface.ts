import type { PeriodHeadroom } from "../../../actors/budget-periods/state.ts";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { AlsoEnded } from "../../../db/ledger/long-holds.ts";
import type { RequestAccounts, UsageFigures } from "../../../db/ledger/rows.ts";
import type { Subject } from "../../../db/queries/subject-budgets.ts";
import type { ExactInteger } from "../../lib/exact-integer.ts";
import type { NanoUsd } from "../../lib/money.ts";

/** An end user or a tag of a request that has a budget. */
export interface BudgetSubject extends Subject {
  readonly budgetId: string;
}

/** The highest cost of a request, as a function of its output token limit. */
export interface HoldRequest {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** End users and tags with budgets, which count the same amounts as the key's. Undefined for most requests. */
  readonly subjects?: readonly BudgetSubject[] | undefined;
  /** Provider cost that does not depend on the output token limit, in femto-USD. */
  readonly fixedFemto: ExactInteger;
  /** Provider cost of one more output token over all choices, in femto-USD. */
  readonly perTokenFemto: ExactInteger;
  /** The output token limit of the caller, or of the model. */
  readonly outputTokens: number;
  /** True if the caller set the limit, so that it must not be reduced. */
  readonly isLimitExplicit: boolean;
  readonly feeBasisPoints: bigint;
  /** The request with its cost for the budgets of its key, if that differs from the charged cost. */
  readonly budget?: HoldRequest | undefined;
}

/** Money held for one request until it is settled or released. */
export interface Hold extends RequestAccounts {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** The held amount, which grows with each extension. */
  readonly holdNano: NanoUsd;
  /** The amount held in the budgets of the key, if it differs. */
  readonly budgetNano: NanoUsd | undefined;
  readonly feeBasisPoints: bigint;
  /** The output token limit that the hold covers. */
  readonly outputTokens: number;
  /** True if the limit is lower than the caller's or the model's. */
  readonly isLowered: boolean;
  readonly admittedAtMs: number;
}

/** The delivered part of a request, and its cost. */
export interface ChargeFigures extends UsageFigures {
  readonly chargeNano: NanoUsd;
  /** The amount for the budgets of the key, if it differs from the charge. */
  readonly budgetNano?: NanoUsd | undefined;
  /** The part of the charge that is the plan's fee. The rest is the provider cost. */
  readonly feeNano: NanoUsd;
  /** The amount by which the provider's figures exceed the hold. */
  readonly clampedNano: NanoUsd;
  readonly model: string;
  readonly provider: string;
  readonly latencyMs: number;
  readonly details: Record<string, unknown> | null;
  readonly description: string;
}

export interface SettlementFigures extends ChargeFigures {
  /** 200, 499 if the client disconnected, or 408 if the request timed out before any output. */
  readonly status: number;
}

/** Money held for work that outlives processes, such as a fine-tuning job. */
export interface LongHoldRequest {
  /** Id of the hold and its charge: the id of the request that ordered the work. */
  readonly id: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** End users and tags with budgets, as for a request. */
  readonly subjects?: readonly BudgetSubject[] | undefined;
  /** Highest cost of the work, fee included. */
  readonly holdNano: NanoUsd;
}

/**
 * Holds that outlive the process that placed them. An effect that is written together with one can throw, such as
 * the guard of a lease. Then the whole transaction fails and nothing is posted.
 */
interface LongHolds {
  /** Places a durable hold in one transaction with `also`. Throws 402 if too little is available. */
  holdLong(request: LongHoldRequest, also?: StatementEffect): Promise<void>;
  /**
   * Charges at most the hold, to the day and month in which it was placed, in one transaction with `also`. If the
   * hold has already ended, this changes nothing and `also` is not written.
   */
  settleLong(id: string, figures: SettlementFigures, also?: StatementEffect): Promise<void>;
  /**
   * Releases the hold in one transaction with `also`. If the hold has already ended, this changes nothing and
   * `also` is not written.
   */
  releaseLong(id: string, also?: StatementEffect): Promise<void>;
  /**
   * Places several holds that share a payer. The granted holds are written in one transaction with the effect
   * that `alsoOf` returns for their ids. Resolves with the errors of the rejected holds by id.
   */
  holdLongs(
    requests: readonly LongHoldRequest[],
    alsoOf: (held: ReadonlySet<string>) => StatementEffect | undefined,
  ): Promise<ReadonlyMap<string, unknown>>;
  /**
   * Charges several holds, each at most its amount, or releases those without figures, in one transaction with
   * `also`. Holds that have already ended are skipped.
   */
  endLong(
    ends: ReadonlyMap<string, SettlementFigures | undefined>,
    also?: AlsoEnded,
  ): Promise<void>;
}

/**
 * Holds money before the provider is called and settles it afterwards, so that no balance and no budget is
 * overspent. Each hold ends exactly once, by `settle` or `release`. If several instances share the database, a
 * hold is durable when `hold` returns it.
 */
export interface MoneyPort extends LongHolds {
  /**
   * Holds money for a request. Throws 402 insufficient_credits or budget_exhausted if too little is available.
   */
  hold(request: HoldRequest): Hold | Promise<Hold>;
  /**
   * Extends the hold of a running request, in the periods in which it was admitted, by the same decision as
   * `hold`. It does not wait for other holds to end, because two requests could then wait for each other.
   *
   * Resolves false, and leaves the hold unchanged, if too little is available, the key was revoked, or the hold
   * has ended. A single node also rejects an extension after the end of a period for which the key or a subject
   * has a budget.
   */
  extend(hold: Hold, moreNano: NanoUsd): Promise<boolean>;
  /** Writes the charge of output that is about to be delivered. Resolves when it is durable. */
  checkpoint(hold: Hold, figures: ChargeFigures): Promise<void>;
  /**
   * Charges a hold, never more than its amount, and writes `also`. Resolves when both are durable. If it rejects,
   * nothing was posted. Rejects with a plain Error, a program error, if the hold does not exist.
   */
  settle(hold: Hold, figures: SettlementFigures, also?: StatementEffect): Promise<void>;
  /** Emits budget.exhausted for a key's periods whose budgets reject a request before its hold. Never rejects. */
  noteUsedUp(
    key: Pick<HoldRequest, "organizationId" | "keyId">,
    periods: readonly Omit<PeriodHeadroom, "availableNano">[],
  ): Promise<void>;
  /**
   * Releases a hold for which no output was delivered. A hold with a checkpoint stays, because it must be
   * settled.
   */
  release(hold: Hold): void;
  /** Number of holds that are neither settled nor released. */
  readonly outstandingHolds: number;
}
