import { FENCED, ModelledError } from "./errors.ts";
import type { ModelContext } from "./model-context.ts";
import type { LockMode } from "./row-locks.ts";
import type { Running, Transaction } from "./transaction.ts";

/** Who a transaction of the ledger was written for. */
export interface WriterNote {
  readonly instanceId: string;
  readonly epoch: bigint;
}

/** True where the instance is alive, which it stays until the transaction has ended. */
export function* isAlive(
  { tables, guards }: ModelContext,
  transaction: Transaction,
  writer: WriterNote,
  mode: LockMode = "key share",
): Running<boolean> {
  transaction.notes.push(writer);
  if (!guards.fence) return true;
  const row = yield* tables.instances.lock(transaction, writer.instanceId, mode);
  return row?.alive === true && row.epoch === writer.epoch;
}

export function* passFence(
  context: ModelContext,
  transaction: Transaction,
  writer: WriterNote,
): Running<void> {
  if (!(yield* isAlive(context, transaction, writer))) {
    throw new ModelledError(FENCED, `instance ${writer.instanceId} was declared dead`);
  }
}
