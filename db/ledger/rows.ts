import type { Quantities } from "../../src/lib/usage.ts";

/** What the ledger writes. Amounts are nano-USD; names are the columns of the tables. */

/** The accounts that a request touches, fixed at its admission, so that midnight moves nothing. */
export interface RequestAccounts {
  readonly orgAccount: string;
  readonly dayAccount: string;
  readonly monthAccount: string;
  /**
   * Those of budgets of end users and tags: day and month of each, one after the other. They count what the
   * budgets of the key do. Undefined for most.
   */
  readonly subjectAccounts?: readonly string[] | undefined;
}

/** Whether two touch the same accounts, those of subjects aside. */
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
  /** What was used besides, by kind: images, characters, searches … Null where there is nothing. */
  readonly quantities: Quantities | null;
  /** True where the gateway counted, because the provider reported no usage. */
  readonly estimated: boolean;
}

export interface LedgerRequest extends RequestAccounts {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
}

/** What the request would be charged if its instance died now. */
export interface Checkpoint extends LedgerRequest, UsageFigures {
  readonly holdNano: bigint;
  readonly chargeNano: bigint;
  /** Of the budgets of the key, where that is not the same. */
  readonly budgetHoldNano?: bigint | undefined;
  readonly budgetNano?: bigint | undefined;
  readonly model: string;
  readonly provider: string;
  readonly latencyMs: number;
  readonly details: Record<string, unknown> | null;
  readonly description: string;
  readonly startedAtMs: number;
}

export interface Settlement extends LedgerRequest, UsageFigures {
  readonly chargeNano: bigint;
  /** What the budgets of the key count, where that is not the charge. */
  readonly budgetNano?: bigint | undefined;
  readonly model: string;
  readonly provider: string;
  /** 200, or 499 where the client went away. */
  readonly status: number;
  readonly latencyMs: number;
  readonly details: Record<string, unknown> | null;
  readonly description: string;
  /** True where a checkpoint was written. */
  readonly hasAttempt: boolean;
}

/** Totals of an account after a commit. Credit is 0 for periods. */
export interface AccountTotals {
  readonly creditNano: bigint;
  readonly postedNano: bigint;
  /** Number of the organization's last transaction; how often a charge was given back to a period. */
  readonly sequence: bigint;
}

export function orgAccountId(organizationId: string): string {
  return `org:${organizationId}`;
}

/** `day` as YYYY-MM-DD, UTC. */
export function dayAccountId(keyId: string, day: string): string {
  return `day:${keyId}:${day}`;
}

/** `monthStart` as YYYY-MM-01, UTC. */
export function monthAccountId(keyId: string, monthStart: string): string {
  return `month:${keyId}:${monthStart}`;
}

export function subjectDayAccountId(budgetId: string, day: string): string {
  return `subject_day:${budgetId}:${day}`;
}

export function subjectMonthAccountId(budgetId: string, monthStart: string): string {
  return `subject_month:${budgetId}:${monthStart}`;
}

/** The budget whose period an account of a subject is. */
export function budgetOfAccount(subjectAccount: string): string {
  return subjectAccount.slice(subjectAccount.indexOf(":") + 1, subjectAccount.lastIndexOf(":"));
}

/** What is asked for of an account. */
export interface DemandedAmounts {
  /** What the request may cost. Of an extension, what the hold is to come to. */
  readonly fullNano: bigint;
  /** The least that will do; where it is below `fullNano`, all that is free is held, up to `mostNano`. */
  readonly leastNano: bigint;
  readonly mostNano: bigint;
}

/** A hold that is asked for: decided in the database, under the locks of its accounts. */
export interface HoldDemand extends RequestAccounts, DemandedAmounts {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** Of the budgets of the key, where that is not the same. */
  readonly budget?: DemandedAmounts | undefined;
  /**
   * `waiting` stands behind earlier ones that need the same money, and keeps later ones behind itself;
   * `last` passes those before it, and keeps none behind itself.
   */
  readonly manner: "waiting" | "last";
  /** Set where the hold of this instance stands already and is to be raised. */
  readonly extends?: true;
}

/** What an account allows, in nano-USD: its whole limit, without what is spent, and without holds too. */
export interface AccountHeadroom {
  readonly limitNano: bigint;
  readonly remainingNano: bigint;
  readonly availableNano: bigint;
}

export type HoldVerdict =
  /** `budgetNano` is what is held of the budgets of the key. */
  | { readonly kind: "granted"; readonly holdNano: bigint; readonly budgetNano: bigint }
  /** An earlier request waits for the same money: of the organization or the key, or of a subject alone. */
  | { readonly kind: "behind"; readonly of: "key" | "subject" }
  /** The hold that was to be raised has ended. */
  | { readonly kind: "gone" }
  /** The key is switched off, or (undefined) was deleted. */
  | { readonly kind: "revoked"; readonly isActive: false | undefined }
  /** There is not enough. Undefined where there is no credit limit, or no such budget. */
  | {
      readonly kind: "short";
      readonly organization: AccountHeadroom | undefined;
      readonly day: AccountHeadroom | undefined;
      readonly month: AccountHeadroom | undefined;
      /** Of the accounts of subjects, in their order. */
      readonly subjects: readonly (AccountHeadroom | undefined)[];
    };

/** A hold that ends without a charge. */
export interface HoldRelease extends RequestAccounts {
  readonly requestId: string;
  /** True where a checkpoint may have been written: it goes too. */
  readonly hasAttempt: boolean;
}

/** A hold that is asked for with the next batch. */
export interface HoldUnit {
  readonly demand: HoldDemand;
  /** Called once the batch is durable. Must not throw. */
  decided(verdict: HoldVerdict): void;
  /** Nothing was written. Must not throw. */
  failed(error: unknown): void;
}

/** The queue of holds, asked when a batch is put together, so that it decides by the latest state. */
export interface HoldSource {
  readonly hasWork: boolean;
  /** A bounded number of them, in the order in which they are to be decided. */
  take(): readonly HoldUnit[];
}
