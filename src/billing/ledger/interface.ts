import type { PeriodHeadroom } from "../../../actors/periods/state.ts";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { AlsoEnded } from "../../../db/ledger/long-holds.ts";
import type { RequestAccounts, UsageFigures } from "../../../db/ledger/rows.ts";
import type { Subject } from "../../../db/queries/subject-budgets.ts";
import type { ExactInteger } from "../../lib/exact-integer.ts";
import type { NanoUsd } from "../../lib/money.ts";

/** An end user or a tag of a request that has a budget of its own. */
export interface BudgetSubject extends Subject {
  readonly budgetId: string;
}

/** What a request may cost at most, as a function of the output tokens it is allowed. */
export interface HoldRequest {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** Their budgets count what those of the key do. Undefined for most. */
  readonly subjects?: readonly BudgetSubject[] | undefined;
  /** Everything that does not depend on the limit of output tokens, in provider cost (femto-USD). */
  readonly fixedFemto: ExactInteger;
  /** Provider cost of one more output token, over all choices. */
  readonly perTokenFemto: ExactInteger;
  /** The limit the caller set, or the model's own. */
  readonly outputTokens: number;
  /** True where the caller set the limit: then it is not lowered. */
  readonly isLimitExplicit: boolean;
  readonly feeBasisPoints: bigint;
  /** The same request as the budgets of its key count it, where that is not what it costs. */
  readonly budget?: HoldRequest | undefined;
}

/** Money set aside for one request until it is settled or released. */
export interface Hold extends RequestAccounts {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** Grows with each extension. */
  readonly holdNano: NanoUsd;
  /** What is held of the budgets of the key, where that is not the same. */
  readonly budgetNano: NanoUsd | undefined;
  readonly feeBasisPoints: bigint;
  /** The limit of output tokens that the hold covers. */
  readonly outputTokens: number;
  /** True where it is lower than what the caller would have had. */
  readonly isLowered: boolean;
  readonly admittedAtMs: number;
}

/** What was delivered of a request, and what that costs. */
export interface ChargeFigures extends UsageFigures {
  readonly chargeNano: NanoUsd;
  /** What the budgets of the key count, where that is not the charge. */
  readonly budgetNano?: NanoUsd | undefined;
  /** What the provider's figures would have cost beyond the hold. */
  readonly clampedNano: NanoUsd;
  readonly model: string;
  readonly provider: string;
  readonly latencyMs: number;
  readonly details: Record<string, unknown> | null;
  readonly description: string;
}

export interface SettlementFigures extends ChargeFigures {
  /** 200, 499 where the client went away, or 408 where its time was up before anything left. */
  readonly status: number;
}

/** Money set aside for work that outlives processes, such as a fine-tuning job. */
export interface LongHoldRequest {
  /** Names the hold, and its charge: the id of the request that ordered the work. */
  readonly id: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** As those of a request. */
  readonly subjects?: readonly BudgetSubject[] | undefined;
  /** What the work may cost at most, fee included. */
  readonly holdNano: NanoUsd;
}

/**
 * Holds that outlive the process that placed them. An effect that is written with one may raise, such as
 * the guard of a lease: then the whole fails, and nothing of it was posted.
 */
interface LongHolds {
  /** Holds durably, in one transaction with `also`. Throws 402. */
  holdLong(request: LongHoldRequest, also?: StatementEffect): Promise<void>;
  /**
   * Charges at most the hold, to the day and month in which it was placed, in one transaction with `also`.
   * Where the hold has ended already this changes nothing, and `also` is not carried out.
   */
  settleLong(id: string, figures: SettlementFigures, also?: StatementEffect): Promise<void>;
  /** Gives the hold back, in one transaction with `also`; as settleLong where it has ended already. */
  releaseLong(id: string, also?: StatementEffect): Promise<void>;
  /**
   * Holds several that share a payer: those that are granted in one transaction with what `alsoOf` makes of them, by
   * name. Resolves with what refuses the others.
   */
  holdLongs(
    requests: readonly LongHoldRequest[],
    alsoOf: (held: ReadonlySet<string>) => StatementEffect | undefined,
  ): Promise<ReadonlyMap<string, unknown>>;
  /**
   * Charges several at most what they hold, or, where there are no figures, gives them back, in one transaction with
   * `also`. Those that have ended already are passed over.
   */
  endLong(
    ends: ReadonlyMap<string, SettlementFigures | undefined>,
    also?: AlsoEnded,
  ): Promise<void>;
}

/**
 * Holds money before the upstream is called and settles it afterwards, so that neither a balance nor a
 * budget is ever overspent. Each hold ends exactly once: by `settle` or by `release`. Where several instances
 * share the database, a hold is durable when `hold` returns it.
 */
export interface MoneyPort extends LongHolds {
  /** Throws 402 insufficient_credits or budget_exhausted where the money is not there. */
  hold(request: HoldRequest): Hold | Promise<Hold>;
  /**
   * Raises a hold by so much while its request runs, by the same decision as `hold`, for the periods in which
   * it was admitted. It does not wait for other holds to end: two requests could wait for one another.
   * Resolves false, with the hold as it was, where the money is not there, the key was revoked, or the hold
   * ends. On a single node it is also refused behind the end of a period for which the key, or a subject,
   * has a budget.
   */
  extend(hold: Hold, moreNano: NanoUsd): Promise<boolean>;
  /** Resolves when the charge of what is about to be delivered is durable. */
  checkpoint(hold: Hold, figures: ChargeFigures): Promise<void>;
  /**
   * Resolves when the charge is durable, and `also` with it. Never charges more than the hold. Where it
   * rejects, nothing was posted. Rejects with a plain Error, a fault of the program, where nothing is held.
   */
  settle(hold: Hold, figures: SettlementFigures, also?: StatementEffect): Promise<void>;
  /** Emits budget.exhausted of a key's periods whose budgets reject a request before it asks for a hold. Never rejects. */
  noteUsedUp(
    key: Pick<HoldRequest, "organizationId" | "keyId">,
    periods: readonly Omit<PeriodHeadroom, "availableNano">[],
  ): Promise<void>;
  /** Gives back what nothing was delivered for. What has a checkpoint stays held: it has to be settled. */
  release(hold: Hold): void;
  /** Number of holds that are neither settled nor released. */
  readonly outstandingHolds: number;
}
