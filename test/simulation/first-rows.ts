import type { Payers } from "./plan.ts";
import { emptyAccount } from "./postgres/ledger-parts.ts";
import type { ModelContext } from "./postgres/model-context.ts";
import { NOTHING_USED } from "./postgres/tables.ts";
import { type Running, Transaction } from "./postgres/transaction.ts";

/** The payers of a schedule, with their first credit, as one transaction. */
export function firstRows(context: ModelContext, payers: Payers): Transaction {
  const transaction = new Transaction();
  const writing = insertPayers(context, transaction, payers);
  if (!writing.next().done) throw new Error("the first rows wait for somebody");
  return transaction;
}

function* insertPayers(
  { tables, nowMs }: ModelContext,
  transaction: Transaction,
  { organizations, keys, subjects }: Payers,
): Running<void> {
  for (const { id, creditNano, creditLimitNano } of organizations) {
    const credit_nano = BigInt(creditNano);
    yield* tables.organizations.insert(transaction, id, { id, name: id, plan: "pro" });
    const account = emptyAccount({
      id: `org:${id}`,
      kind: "org",
      organization_id: id,
      period_start: null,
    });
    yield* tables.accounts.insert(transaction, account.id, {
      ...account,
      credit_nano,
      credit_limit_nano: nano(creditLimitNano),
      sequence: 1n,
    });
    yield* tables.transactions.insert(transaction, `${id} 1`, {
      organization_id: id,
      sequence: 1n,
      id: `txn_first_${id}`,
      type: "adjustment",
      amount_nano: credit_nano,
      balance_after_nano: credit_nano,
      description: "Starting credit",
      key_id: null,
      request_id: null,
      refunded_request_id: null,
      ...NOTHING_USED,
    });
  }
  for (const key of keys) {
    yield* tables.apiKeys.insert(transaction, key.id, {
      id: key.id,
      organization_id: key.organizationId,
      kind: "secret",
      name: key.id,
      key_prefix: key.id,
      scopes: [],
      rate_limit_rpm: null,
      rate_limit_tpm: null,
      daily_budget_nano: nano(key.dailyBudgetNano),
      monthly_budget_nano: nano(key.monthlyBudgetNano),
      budget_includes_byok: false,
      allowed_models: null,
      expires_at: null,
      team_id: null,
      playground_holder: null,
      owner_id: null,
      is_active: true,
      created_at: new Date(nowMs()),
      deleted_at: null,
    });
  }
  for (const subject of subjects) {
    yield* tables.subjectBudgets.insert(transaction, subject.id, {
      id: subject.id,
      organization_id: subject.organizationId,
      subject_type: "user",
      subject_value: subject.id,
      daily_budget_nano: nano(subject.dailyBudgetNano),
      monthly_budget_nano: nano(subject.monthlyBudgetNano),
      created_at: new Date(nowMs()),
    });
  }
}

function nano(amount: number | null): bigint | null {
  return amount === null ? null : BigInt(amount);
}
