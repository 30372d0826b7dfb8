import { type BatchRows, chargesOf } from "./batch-rows.ts";
import { emitBudgetEvents } from "./budget-events.ts";
import { ModelledError, NOT_NULL_VIOLATION } from "./errors.ts";
import { passFence } from "./fence.ts";
import {
  createAccounts,
  isPosted,
  keepCheckpoints,
  lockAccounts,
  postUsage,
} from "./ledger-parts.ts";
import type { ModelContext } from "./model-context.ts";
import type { AccountRow } from "./tables.ts";
import type { Running, Transaction } from "./transaction.ts";

/** As the function of that name: holds are in the memory of the one gateway. */
export function* ledgerSettle(
  context: ModelContext,
  transaction: Transaction,
  batch: BatchRows,
): Running<string[] | null> {
  yield* passFence(context, transaction, {
    instanceId: batch.instance,
    epoch: BigInt(batch.epoch),
  });
  yield* createAccounts(context, transaction, batch);
  const charges = chargesOf(batch);
  if (batch.recheck === true && charges.length > 0) {
    const ids = (batch.accounts ?? []).map(({ id }) => id);
    yield* lockAccounts(context, transaction, ids);
    if (charges.some(({ requestId }) => isPosted(context, transaction, requestId))) return null;
  }
  yield* keepCheckpoints(context, transaction, batch);
  const rows = yield* chargeAccounts(context, transaction, batch);
  for (const charge of charges) {
    const account = batch.accounts![charge.account - 1]!;
    const { sequence, credit_nano, posted_nano } = rows[charge.account - 1]!;
    yield* postUsage(context, transaction, charge, {
      sequence: sequence - BigInt(account.count) + BigInt(charge.place),
      balanceAfterNano: credit_nano - posted_nano + BigInt(account.charge_nano) - charge.sumNano,
    });
  }
  for (const requestId of batch.attempts ?? []) {
    yield* context.tables.attempts.delete(transaction, requestId);
  }
  const periods = rows.filter(({ kind }) => kind !== "org").map(({ id }) => id);
  if (periods.length > 0) yield* emitBudgetEvents(context, transaction, periods, false);
  return rows.flatMap((row) => [
    String(row.credit_nano),
    String(row.posted_nano),
    String(row.sequence),
  ]);
}

function* chargeAccounts(
  { tables }: ModelContext,
  transaction: Transaction,
  { accounts = [] }: BatchRows,
): Running<AccountRow[]> {
  const rows: AccountRow[] = [];
  for (const { id, charge_nano: charge, count } of accounts) {
    const row = yield* tables.accounts.update(transaction, id, (before) => ({
      ...before,
      posted_nano: before.posted_nano + BigInt(charge),
      sequence: before.sequence + BigInt(count),
    }));
    if (row === undefined) {
      throw new ModelledError(NOT_NULL_VIOLATION, "a charge without its account");
    }
    rows.push(row);
  }
  return rows;
}
