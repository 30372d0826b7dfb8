import type { Quantities } from "../../src/lib/usage.ts";

/** Rows that the ledger writes. Amounts are nano-USD. Members have the names of the tables' columns. */

/**
 * The accounts that a request touches, fixed at its admission, so that midnight changes nothing.
 */
export interface RequestAccounts {
  readonly orgAccount: string;
  readonly dayAccount: string;
  readonly monthAccount: string;
  /**
   * Accounts of the budgets of end users and tags: day and month of each, one after the other. They count the same
   * amounts as the budgets of the key. Undefined for most requests.
   */
  readonly subjectAccounts?: readonly string[] | undefined;
}

/** Returns true if two requests touch the same accounts, not counting accounts of subjects. */
export function isSamePayer(one: RequestAccounts, other: RequestAccounts): boolean {
  return (
    one.dayAccount === other.dayAccount &&
    one.monthAccount === other.monthAccount &&
    one.orgAccount === other.orgAccount
  );
}

export interface UsageFigures {
  readonly promptTokens: number;
  readonly cachedPromptTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  /** Other use by kind: images, characters, searches … Null if there is none. */
  readonly quantities: Quantities | null;
  /** True if the gateway counted, because the provider reported no usage. */
  readonly estimated: boolean;
}

export interface LedgerRequest extends RequestAccounts {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
}

/** Amounts and counts that the request would be charged if its instance died now. */
export interface Checkpoint extends LedgerRequest, UsageFigures {
  readonly holdNano: bigint;
  readonly chargeNano: bigint;
  /** Amount held for the budgets of the key. Undefined if it equals the hold. */
  readonly budgetHoldNano?: bigint | undefined;
  readonly budgetNano?: bigint | undefined;
  /** Part of the charge that is the plan's fee. */
  readonly feeNano: bigint;
  readonly model: string;
  readonly provider: string;
  readonly latencyMs: number;
  readonly details: Record<string, unknown> | null;
  readonly description: string;
  readonly startedAtMs: number;
}

export interface Settlement extends LedgerRequest, UsageFigures {
  readonly chargeNano: bigint;
  /** Amount that the budgets of the key count. Undefined if it equals the charge. */
  readonly budgetNano?: bigint | undefined;
  /** Part of the charge that is the plan's fee. Undefined if an earlier version wrote the checkpoint. */
  readonly feeNano: bigint | undefined;
  readonly model: string;
  readonly provider: string;
  /** 200, 499 if the client disconnected, or 500 if the instance died. */
  readonly status: number;
  readonly latencyMs: number;
  readonly details: Record<string, unknown> | null;
  readonly description: string;
  /** True if a checkpoint was written. */
  readonly hasAttempt: boolean;
}

/** Totals of an account after a commit. Credit is 0 for periods. */
export interface AccountTotals {
  readonly creditNano: bigint;
  readonly postedNano: bigint;
  /**
   * Number of the organization's last transaction. Of a period: number of refunded charges.
   */
  readonly sequence: bigint;
}

export function orgAccountId(organizationId: string): string {
  return `org:${organizationId}`;
}

/** Returns the id of a key's day. `day` is YYYY-MM-DD, UTC. */
export function dayAccountId(keyId: string, day: string): string {
  return `day:${keyId}:${day}`;
}

/** Returns the id of a key's month. `monthStart` is YYYY-MM-01, UTC. */
export function monthAccountId(keyId: string, monthStart: string): string {
  return `month:${keyId}:${monthStart}`;
}

export function subjectDayAccountId(budgetId: string, day: string): string {
  return `subject_day:${budgetId}:${day}`;
}

export function subjectMonthAccountId(budgetId: string, monthStart: string): string {
  return `subject_month:${budgetId}:${monthStart}`;
}

/** Returns the budget to which an account of a subject belongs. */
export function budgetOfAccount(subjectAccount: string): string {
  return subjectAccount.slice(subjectAccount.indexOf(":") + 1, subjectAccount.lastIndexOf(":"));
}

/** Amounts to hold in an account, in nano-USD. */
export interface DemandedAmounts {
  /** Largest cost of the request. For an extension: the new total of the hold. */
  readonly fullNano: bigint;
  /**
   * Smallest acceptable amount. If it is below `fullNano`, the available amount is held, up to `mostNano`.
   */
  readonly leastNano: bigint;
  readonly mostNano: bigint;
}

/** A requested hold. The database decides it, under the locks of its accounts. */
export interface HoldDemand extends RequestAccounts, DemandedAmounts {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** Amounts for the budgets of the key. Undefined if they are the same. */
  readonly budget?: DemandedAmounts | undefined;
  /**
   * `waiting` queues after earlier requests for the same money and blocks later ones. `last` does not wait for those
   * before it, and blocks none.
   */
  readonly manner: "waiting" | "last";
  /** True if a hold of this instance exists and is to be raised. */
  readonly extends?: true;
}

/**
 * Amounts that an account allows, in nano-USD: its limit, the limit less the amount spent, and that less the amount
 * held.
 */
export interface AccountHeadroom {
  readonly limitNano: bigint;
  readonly remainingNano: bigint;
  readonly availableNano: bigint;
}

export type HoldVerdict =
  /** `budgetNano` is the amount held for the budgets of the key. */
  | { readonly kind: "granted"; readonly holdNano: bigint; readonly budgetNano: bigint }
  /**
   * An earlier request waits for the same money: of the organization or the key, or of a subject alone.
   */
  | { readonly kind: "blocked"; readonly of: "key" | "subject" }
  /** The hold that was to be raised has ended. */
  | { readonly kind: "gone" }
  /** The key is disabled, or (undefined) was deleted. */
  | { readonly kind: "revoked"; readonly isActive: false | undefined }
  /** Not enough is available. Undefined if there is no credit limit, or no such budget. */
  | {
      readonly kind: "short";
      readonly organization: AccountHeadroom | undefined;
      readonly day: AccountHeadroom | undefined;
      readonly month: AccountHeadroom | undefined;
      /** Headroom of the accounts of subjects, in their order. */
      readonly subjects: readonly (AccountHeadroom | undefined)[];
    };

/** A hold that ends without a charge. */
export interface HoldRelease extends RequestAccounts {
  readonly requestId: string;
  /** True if a checkpoint may have been written: it is deleted too. */
  readonly hasAttempt: boolean;
}

/** A hold that is requested with the next batch. */
export interface HoldUnit {
  readonly demand: HoldDemand;
  /** Called after the batch is durable. Must not throw. */
  decided(verdict: HoldVerdict): void;
  /** Called if nothing was written. Must not throw. */
  failed(error: unknown): void;
}

/**
 * The queue of holds. Each batch takes from it when it is built, so that it decides by the latest state.
 */
export interface HoldSource {
  readonly hasWork: boolean;
  /**
   * Removes and returns a bounded number of holds, in the order in which they are to be decided.
   */
  take(): readonly HoldUnit[];
}
