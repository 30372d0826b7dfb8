import type { ModelContext } from "./model-context.ts";
import { noteChange } from "./post-credit.ts";
import { NOTHING_USED } from "./tables.ts";
import type { Running, Transaction } from "./transaction.ts";

export interface RefundRow {
  readonly transactionId: string;
  readonly requestId: string;
  readonly dayAccount: string;
  readonly monthAccount: string;
  readonly description: string;
}

/** As ledger_refund. False where there is nothing to give back, or it was given back already. */
export function* refundCharge(
  context: ModelContext,
  transaction: Transaction,
  refund: RefundRow,
): Running<boolean> {
  const { accounts, refunds, transactions } = context.tables;
  const { requestId, dayAccount, monthAccount } = refund;
  const charge = [...transactions.all(transaction)].find((row) => row.request_id === requestId);
  if (charge === undefined) return false;
  const { organization_id, key_id, amount_nano, budget_nano } = charge;
  const budget = budget_nano ?? -amount_nano;
  if (amount_nano === 0n && budget === 0n) return false;
  for (const id of [`org:${organization_id}`, dayAccount, monthAccount].sort()) {
    yield* accounts.lock(transaction, id, "update");
  }
  if (refunds.read(transaction, requestId) !== undefined) return false;
  for (const id of [dayAccount, monthAccount]) {
    yield* accounts.update(transaction, id, (row) => {
      if (row.key_id !== key_id) return undefined;
      const rest = row.posted_nano - budget;
      return { ...row, posted_nano: rest > 0n ? rest : 0n, sequence: row.sequence + 1n };
    });
  }
  const account = (yield* accounts.update(transaction, `org:${organization_id}`, (row) => ({
    ...row,
    credit_nano: row.credit_nano - amount_nano,
    sequence: row.sequence + 1n,
  })))!;
  yield* refunds.insert(transaction, requestId, { requestId });
  yield* transactions.insert(transaction, `${organization_id} ${account.sequence}`, {
    organization_id,
    sequence: account.sequence,
    id: refund.transactionId,
    type: "refund",
    amount_nano: -amount_nano,
    balance_after_nano: account.credit_nano - account.posted_nano,
    description: refund.description,
    key_id,
    request_id: null,
    refunded_request_id: requestId,
    ...NOTHING_USED,
    budget_nano: budget_nano === null ? null : -budget_nano,
  });
  for (const [kind, objectId] of [
    ["organization", organization_id],
    ["api-key", key_id!],
  ] as const) {
    yield* noteChange(context, transaction, kind, objectId);
    transaction.notifications.push(`gateway_changes ${kind} ${objectId}`);
  }
  return true;
}

/** As ledger_refund_subjects. */
export function* refundSubjects(
  context: ModelContext,
  transaction: Transaction,
  requestId: string,
  ids: readonly string[],
): Running<void> {
  const { accounts, transactions } = context.tables;
  const charge = [...transactions.all(transaction)].find((row) => row.request_id === requestId)!;
  const budget = charge.budget_nano ?? -charge.amount_nano;
  for (const id of [...ids].sort()) yield* accounts.lock(transaction, id, "update");
  const budgets = new Set<string>();
  for (const id of ids) {
    yield* accounts.update(transaction, id, (row) => {
      if (row.budget_id === null || row.organization_id !== charge.organization_id)
        return undefined;
      budgets.add(row.budget_id);
      const rest = row.posted_nano - budget;
      return { ...row, posted_nano: rest > 0n ? rest : 0n, sequence: row.sequence + 1n };
    });
  }
  for (const id of budgets) {
    yield* noteChange(context, transaction, "subject-budget", id);
    transaction.notifications.push(`gateway_changes subject-budget ${id}`);
  }
}
