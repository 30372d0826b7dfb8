import type { ModelContext } from "./model-context.ts";
import { NOTHING_USED } from "./tables.ts";
import type { Running, Transaction } from "./transaction.ts";

export interface CreditRow {
  readonly id: string;
  readonly organizationId: string;
  readonly type: string;
  readonly amountNano: bigint;
  readonly description: string;
}

/** As ledger_post_credit. Undefined where the organization is unknown, or has not so much to take. */
export function* postCredit(
  context: ModelContext,
  transaction: Transaction,
  credit: CreditRow,
): Running<{ id: string; balance_after_nano: bigint; created_at: Date } | undefined> {
  const { accounts, transactions } = context.tables;
  const account = yield* accounts.update(transaction, `org:${credit.organizationId}`, (row) => {
    const { credit_limit_nano: limit } = row;
    const unheld = row.credit_nano - row.posted_nano - row.held_nano;
    if (credit.amountNano < 0n && limit !== null && unheld + limit + credit.amountNano < 0n) {
      return undefined;
    }
    const { amountNano } = credit;
    return {
      ...row,
      credit_nano: row.credit_nano + amountNano,
      last_topup_nano: credit.type === "topup" ? amountNano : row.last_topup_nano,
      sequence: row.sequence + 1n,
    };
  });
  if (account === undefined) return undefined;
  const balance = account.credit_nano - account.posted_nano;
  yield* transactions.insert(transaction, `${credit.organizationId} ${account.sequence}`, {
    organization_id: credit.organizationId,
    sequence: account.sequence,
    id: credit.id,
    type: credit.type,
    amount_nano: credit.amountNano,
    balance_after_nano: balance,
    description: credit.description,
    key_id: null,
    request_id: null,
    refunded_request_id: null,
    ...NOTHING_USED,
  });
  yield* noteChange(context, transaction, "organization", credit.organizationId);
  transaction.notifications.push(`gateway_changes organization ${credit.organizationId}`);
  return { id: credit.id, balance_after_nano: balance, created_at: new Date(context.nowMs()) };
}

export function* noteChange(
  { tables, nextId, nowMs }: ModelContext,
  transaction: Transaction,
  kind: string,
  objectId: string,
): Running<void> {
  const id = BigInt(nextId());
  yield* tables.changes.insert(transaction, String(id), {
    id,
    kind,
    object_id: objectId,
    changed_at_ms: nowMs(),
  });
}
