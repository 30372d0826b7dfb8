import type { Quantities } from "../../src/lib/usage.ts";

/** What the ledger writes. Amounts are nano-USD; names are the columns of the tables. */

/** The three accounts that a request touches, fixed at its admission, so that midnight moves nothing. */
export interface RequestAccounts {
  readonly orgAccount: string;
  readonly dayAccount: string;
  readonly monthAccount: string;
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
  readonly model: string;
  readonly provider: string;
  readonly latencyMs: number;
  readonly details: Record<string, unknown> | null;
  readonly description: string;
  readonly startedAtMs: number;
}

export interface Settlement extends LedgerRequest, UsageFigures {
  readonly chargeNano: bigint;
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

/** Totals of an account after a commit. Credit is 0 for the periods of keys. */
export interface AccountTotals {
  readonly creditNano: bigint;
  readonly postedNano: bigint;
  /** Number of the organization's last transaction; how often a charge was given back to a key's period. */
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
