import { type BatchRows, type Charge, chargesOf } from "./batch-rows.ts";
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

export type TotalsRow = [id: string, credit: string, posted: string, sequence: string];

/** As the function of that name: holds are in the memory of the one gateway. */
export function* ledgerCommit(
  context: ModelContext,
  transaction: Transaction,
  batch: BatchRows,
): Running<TotalsRow[]> {
  yield* passFence(context, transaction, {
    instanceId: batch.instance,
    epoch: BigInt(batch.epoch),
  });
  yield* keepCheckpoints(context, transaction, batch);
  if (batch.settlements === undefined) return [];
  yield* createAccounts(context, transaction, batch);
  const ids = batch.account_ids ?? [];
  yield* lockAccounts(context, transaction, ids);
  if (ids.some((id) => context.tables.accounts.read(transaction, id) === undefined)) {
    throw new ModelledError(NOT_NULL_VIOLATION, "a charge without its account");
  }
  const recheck = batch.recheck === true;
  const charges = chargesOf(batch).filter(
    (charge) => !(recheck && isPosted(context, transaction, charge.requestId)),
  );
  const touched = yield* postCharges(context, transaction, charges);
  if (recheck) {
    for (const { r } of batch.settlements) yield* context.tables.attempts.delete(transaction, r);
  }
  const periods = touched.filter(({ kind }) => kind !== "org");
  yield* emitBudgetEvents(
    context,
    transaction,
    periods.map(({ id }) => id),
    false,
  );
  if (!recheck) return touched.map(({ id }) => totalsOf(context, transaction, id, false));
  return ids
    .filter((id) => context.tables.accounts.read(transaction, id) !== undefined)
    .map((id) => totalsOf(context, transaction, id, true));
}

/** Posts, moves the totals, and removes the attempts. Returns the accounts that it has changed. */
function* postCharges(
  context: ModelContext,
  transaction: Transaction,
  charges: readonly Charge[],
): Running<AccountRow[]> {
  const { accounts, attempts } = context.tables;
  const touched = new Map<string, AccountRow>();
  const note = (row: AccountRow | undefined): void => {
    if (row !== undefined) touched.set(row.id, row);
  };
  for (const charge of charges) {
    const organization = yield* accounts.update(transaction, charge.org_account, (before) => ({
      ...before,
      posted_nano: before.posted_nano + charge.chargeNano,
      sequence: before.sequence + 1n,
    }));
    if (organization === undefined) {
      throw new ModelledError(NOT_NULL_VIOLATION, "a charge without its account");
    }
    note(organization);
    for (const id of [charge.day_account, charge.month_account]) {
      note(
        yield* accounts.update(transaction, id, (before) => ({
          ...before,
          posted_nano: before.posted_nano + charge.chargeNano,
        })),
      );
    }
    yield* postUsage(context, transaction, charge, {
      sequence: organization.sequence,
      balanceAfterNano: organization.credit_nano - organization.posted_nano,
    });
    if (charge.hasAttempt) yield* attempts.delete(transaction, charge.requestId);
  }
  return [...touched.values()];
}

/** Of a period only what it has spent is told, unless everything is told again. */
function totalsOf(
  { tables }: ModelContext,
  transaction: Transaction,
  id: string,
  isWhole: boolean,
): TotalsRow {
  const row = tables.accounts.read(transaction, id)!;
  if (row.kind !== "org" && !isWhole) return [id, "0", String(row.posted_nano), "0"];
  return [id, String(row.credit_nano), String(row.posted_nano), String(row.sequence)];
}
