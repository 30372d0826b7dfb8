import type { KeyRow } from "../../../db/queries/api-keys.ts";
import type { Quantities } from "../../../src/lib/usage.ts";
import { AccountTable } from "./credits-low.ts";
import { Table } from "./table.ts";

/* Rows of the tables that the ledger and the actors use; columns as in db/schema. */

export interface AccountRow {
  readonly id: string;
  readonly kind: string;
  readonly organization_id: string;
  readonly key_id: string | null;
  readonly budget_id: string | null;
  readonly period_start: string | null;
  readonly credit_nano: bigint;
  readonly credit_limit_nano: bigint | null;
  readonly last_topup_nano: bigint;
  readonly posted_nano: bigint;
  readonly held_nano: bigint;
  readonly sequence: bigint;
  readonly budget_events: number;
}

export interface ApiKeyRow extends Omit<KeyRow, "budget_events"> {
  readonly deleted_at: Date | null;
}

export interface SubjectBudgetRow {
  readonly id: string;
  readonly organization_id: string;
  readonly subject_type: string;
  readonly subject_value: string;
  readonly daily_budget_nano: bigint | null;
  readonly monthly_budget_nano: bigint | null;
  readonly created_at: Date;
}

export interface AttemptRow {
  readonly request_id: string;
  readonly instance_id: string;
  readonly epoch: bigint;
  readonly organization_id: string;
  readonly key_id: string;
  readonly org_account: string;
  readonly day_account: string;
  readonly month_account: string;
  readonly subject_accounts: readonly string[] | null;
  readonly hold_nano: bigint;
  readonly charge_nano: bigint;
  readonly budget_hold_nano: bigint | null;
  readonly budget_charge_nano: bigint | null;
  readonly fee_nano: bigint | null;
  readonly model: string;
  readonly provider: string;
  readonly prompt_tokens: number;
  readonly cached_prompt_tokens: number;
  readonly completion_tokens: number;
  readonly reasoning_tokens: number;
  readonly quantities: Quantities | null;
  readonly estimated: boolean;
  readonly latency_ms: number;
  readonly details: Record<string, unknown> | null;
  readonly description: string;
}

/** What a usage transaction was charged for; all null in transactions of other types. */
export interface Used {
  /** What the budgets of the key count, where that is not the charge. */
  readonly budget_nano: bigint | null;
  readonly fee_nano: bigint | null;
  readonly prompt_tokens: bigint | null;
  readonly cached_prompt_tokens: bigint | null;
  readonly completion_tokens: bigint | null;
  readonly reasoning_tokens: bigint | null;
  readonly quantities: Quantities | null;
}

export const NOTHING_USED: Used = {
  budget_nano: null,
  fee_nano: null,
  prompt_tokens: null,
  cached_prompt_tokens: null,
  completion_tokens: null,
  reasoning_tokens: null,
  quantities: null,
};

export interface HoldRow {
  readonly id: string;
  readonly instance_id: string | null;
  readonly epoch: bigint | null;
  readonly org_account: string;
  readonly day_account: string;
  readonly month_account: string;
  readonly subject_accounts: readonly string[] | null;
  readonly hold_nano: bigint;
  readonly budget_nano: bigint | null;
}

export interface InstanceRow {
  readonly id: string;
  readonly epoch: bigint;
  readonly alive: boolean;
  readonly is_alone: boolean;
  readonly is_settled: boolean;
  readonly heartbeat_at_ms: number;
}

export interface TransactionRow extends Used {
  readonly organization_id: string;
  readonly sequence: bigint;
  readonly id: string;
  readonly type: string;
  readonly amount_nano: bigint;
  readonly balance_after_nano: bigint;
  readonly description: string;
  readonly key_id: string | null;
  readonly request_id: string | null;
  readonly refunded_request_id: string | null;
}

export interface ChangeRow {
  readonly id: bigint;
  readonly kind: string;
  readonly object_id: string;
  readonly changed_at_ms: number;
}

export interface OutboxRow {
  readonly event_id: string;
  readonly organization_id: string;
  readonly type: string;
  readonly data: Record<string, unknown>;
}

export interface CreditCommandRow {
  readonly id: string;
  readonly organization_id: string;
  readonly kind: string;
  readonly amount_nano: bigint;
  readonly credit_limit_nano: bigint | null;
  readonly description: string;
  readonly done_at: Date | null;
  readonly transaction_id: string | null;
  readonly refused_code: string | null;
}

export interface Tables {
  readonly accounts: Table<AccountRow>;
  readonly apiKeys: Table<ApiKeyRow>;
  readonly attempts: Table<AttemptRow>;
  readonly changes: Table<ChangeRow>;
  readonly commitMarks: Table<{ readonly id: string }>;
  readonly creditCommands: Table<CreditCommandRow>;
  readonly holds: Table<HoldRow>;
  readonly instances: Table<InstanceRow>;
  readonly organizations: Table<{
    readonly id: string;
    readonly name: string;
    readonly plan: string;
  }>;
  readonly outbox: Table<OutboxRow>;
  /** The unique index on outbox.event_id. */
  readonly outboxIds: Table<{ readonly event_id: string }>;
  /** The unique index on transactions.refunded_request_id. */
  readonly refunds: Table<{ readonly requestId: string }>;
  readonly subjectBudgets: Table<SubjectBudgetRow>;
  readonly transactions: Table<TransactionRow>;
  /** The unique index on transactions.request_id: request → transaction. */
  readonly usages: Table<{ readonly requestId: string; readonly transactionId: string }>;
}

/** The CHECK constraints of db/schema/ledger.ts. */
function violatedByAccount(row: AccountRow): string | undefined {
  const { kind, credit_nano: credit, credit_limit_nano: limit } = row;
  if (kind === "org" && limit !== null && credit + limit < row.posted_nano + row.held_nano) {
    return "accounts_within_credit";
  }
  if (row.posted_nano < 0n) return "accounts_posted";
  return row.held_nano < 0n ? "accounts_held" : undefined;
}

/** With `limits` false nothing of the database keeps a balance within its credit. */
export function createTables(limits = true): Tables {
  const outbox = new Table<OutboxRow>("outbox");
  return {
    accounts: new AccountTable(outbox, limits ? violatedByAccount : undefined),
    apiKeys: new Table("api_keys"),
    attempts: new Table("attempts"),
    changes: new Table("changes"),
    commitMarks: new Table("commit_marks"),
    creditCommands: new Table("credit_commands"),
    holds: new Table("holds"),
    instances: new Table("instances"),
    organizations: new Table("organizations"),
    outbox,
    outboxIds: new Table("outbox_ids"),
    refunds: new Table("refunds"),
    subjectBudgets: new Table("subject_budgets"),
    transactions: new Table("transactions"),
    usages: new Table("usages"),
  };
}
