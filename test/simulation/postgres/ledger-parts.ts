import type { BatchRows, Charge } from "./batch-rows.ts";
import type { ModelContext } from "./model-context.ts";
import type { AccountRow } from "./tables.ts";
import { A_MOMENT, type Running, type Transaction } from "./transaction.ts";

/* What ledger_settle_batch and ledger_exchange_batch have in common. */

export function emptyAccount(
  row: Pick<AccountRow, "id" | "kind" | "organization_id" | "period_start"> &
    Partial<Pick<AccountRow, "key_id" | "budget_id">>,
): AccountRow {
  return {
    ...row,
    key_id: row.key_id ?? null,
    budget_id: row.budget_id ?? null,
    credit_nano: 0n,
    credit_limit_nano: 0n,
    last_topup_nano: 0n,
    posted_nano: 0n,
    held_nano: 0n,
    sequence: 0n,
    budget_events: 0,
  };
}

export function* createAccounts(
  { tables }: ModelContext,
  transaction: Transaction,
  { new_accounts: rows = [] }: BatchRows,
): Running<void> {
  for (const row of [...rows].sort((one, other) => (one.id < other.id ? -1 : 1))) {
    yield* tables.accounts.insertUnlessThere(transaction, row.id, emptyAccount(row));
  }
}

export function* lockAccounts(
  { tables, guards, isInterrupted, shuffled }: ModelContext,
  transaction: Transaction,
  ids: readonly string[],
): Running<void> {
  const ordered = guards.orderedLocks ? [...new Set(ids)].sort() : shuffled([...new Set(ids)]);
  for (const id of ordered) {
    yield* tables.accounts.lock(transaction, id, "update");
    if (isInterrupted()) yield A_MOMENT;
  }
}

export function* keepCheckpoints(
  { tables }: ModelContext,
  transaction: Transaction,
  batch: BatchRows,
): Running<void> {
  for (const row of batch.checkpoints ?? []) {
    const attempt = {
      ...row,
      instance_id: batch.instance,
      epoch: BigInt(batch.epoch),
      hold_nano: BigInt(row.hold_nano),
      charge_nano: BigInt(row.charge_nano),
      budget_hold_nano: nanoOrNull(row.budget_hold_nano),
      budget_charge_nano: nanoOrNull(row.budget_charge_nano),
      fee_nano: nanoOrNull(row.fee_nano),
      subject_accounts: row.subject_accounts ?? null,
      quantities: row.quantities ?? null,
      details: row.details ?? null,
    };
    if (yield* tables.attempts.insertUnlessThere(transaction, row.request_id, attempt)) continue;
    yield* tables.attempts.update(transaction, row.request_id, (before) => ({
      ...before,
      hold_nano: attempt.hold_nano,
      charge_nano: attempt.charge_nano,
      budget_hold_nano: attempt.budget_hold_nano,
      budget_charge_nano: attempt.budget_charge_nano,
      fee_nano: attempt.fee_nano,
      prompt_tokens: attempt.prompt_tokens,
      cached_prompt_tokens: attempt.cached_prompt_tokens,
      completion_tokens: attempt.completion_tokens,
      reasoning_tokens: attempt.reasoning_tokens,
      quantities: attempt.quantities,
      estimated: attempt.estimated,
      latency_ms: attempt.latency_ms,
    }));
  }
}

function nanoOrNull(text: string | undefined): bigint | null {
  return text === undefined ? null : BigInt(text);
}

export function isPosted(
  { tables, guards }: ModelContext,
  transaction: Transaction,
  requestId: string,
): boolean {
  return guards.settleOnce && tables.usages.read(transaction, requestId) !== undefined;
}

/** Writes one usage transaction. */
export function* postUsage(
  { tables, guards }: ModelContext,
  transaction: Transaction,
  charge: Charge,
  place: { readonly sequence: bigint; readonly balanceAfterNano: bigint },
): Running<void> {
  const id = `txn_${charge.requestId.slice(4)}`;
  const { organization_id: organization, requestId } = charge;
  yield* tables.transactions.insert(transaction, `${organization} ${place.sequence}`, {
    organization_id: organization,
    sequence: place.sequence,
    id,
    type: "usage",
    amount_nano: -charge.chargeNano,
    balance_after_nano: place.balanceAfterNano,
    description: charge.description,
    key_id: charge.key_id,
    request_id: requestId,
    refunded_request_id: null,
    prompt_tokens: charge.prompt_tokens,
    cached_prompt_tokens: charge.cached_prompt_tokens,
    completion_tokens: charge.completion_tokens,
    reasoning_tokens: charge.reasoning_tokens,
    quantities: charge.quantities,
    budget_nano: charge.budget_nano,
    fee_nano: charge.fee_nano,
  });
  const entry = { requestId, transactionId: id };
  if (guards.settleOnce) yield* tables.usages.insert(transaction, requestId, entry);
  else yield* tables.usages.insertUnlessThere(transaction, requestId, entry);
}
