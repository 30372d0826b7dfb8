import { type Database, type DatabaseTransaction, sqlState } from "../client.ts";
import { commitLedgerBatch, FENCED, type InstanceIdentity } from "./commit-batch.ts";
import type { StatementEffect } from "./effects.ts";
import { isOutcomeUnknown } from "./outcome.ts";
import type { AccountTotals, Checkpoint, Settlement } from "./rows.ts";

interface StatementUnit {
  readonly checkpoints: readonly Checkpoint[];
  readonly settlements: readonly Settlement[];
  readonly statements: readonly StatementEffect[];
}

const RETRY_DELAY_MS = 50;

/** Thrown inside a transaction to end it with the fence's own SQLSTATE. */
class FencedError extends Error {
  readonly code = FENCED;
}

/**
 * Writes units that hold statements of administration in one fenced transaction. Where the connection
 * breaks during the commit, the transaction's own id tells afterwards what became of it.
 */
export async function commitStatements(
  { sql, instance }: { readonly sql: Database; readonly instance: InstanceIdentity },
  units: readonly StatementUnit[],
): Promise<ReadonlyMap<string, AccountTotals>> {
  for (;;) {
    let transactionId: string | undefined;
    let totals: ReadonlyMap<string, AccountTotals> = new Map();
    try {
      await sql.begin(async (transaction) => {
        transactionId = await openFenced(transaction, instance);
        totals = await writeLedger(transaction, instance, units);
        for (const unit of units) {
          for (const statement of unit.statements) await statement.run(transaction);
        }
      });
      return totals;
    } catch (error) {
      if (!isOutcomeUnknown(error)) {
        if (sqlState(error) !== "40P01" && sqlState(error) !== "40001") throw error;
      } else if (transactionId !== undefined && (await wasCommitted(sql, transactionId))) {
        return totals;
      }
      await Bun.sleep(RETRY_DELAY_MS);
    }
  }
}

async function openFenced(sql: DatabaseTransaction, instance: InstanceIdentity): Promise<string> {
  const [row] = await sql<{ transaction_id: string }[]>`
    SELECT pg_current_xact_id()::text AS transaction_id FROM instances
    WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint AND alive FOR KEY SHARE`;
  if (!row) throw new FencedError("this instance was declared dead");
  return row.transaction_id;
}

async function writeLedger(
  sql: DatabaseTransaction,
  instance: InstanceIdentity,
  units: readonly StatementUnit[],
): Promise<ReadonlyMap<string, AccountTotals>> {
  const checkpoints = units.flatMap((unit) => unit.checkpoints);
  const settlements = units.flatMap((unit) => unit.settlements);
  if (checkpoints.length === 0 && settlements.length === 0) return new Map();
  return commitLedgerBatch(sql, instance, {
    checkpoints,
    settlements,
    knownAccounts: new Set(),
    recheck: true,
  });
}

async function wasCommitted(sql: Database, transactionId: string): Promise<boolean> {
  for (;;) {
    try {
      const [row] = await sql<{ status: string | null }[]>`
        SELECT pg_xact_status(${transactionId}::xid8) AS status`;
      if (row?.status !== "in progress") return row?.status === "committed";
    } catch (error) {
      if (!isOutcomeUnknown(error)) throw error;
    }
    await Bun.sleep(RETRY_DELAY_MS);
  }
}
