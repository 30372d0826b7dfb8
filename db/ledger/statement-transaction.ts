import { newId } from "../../src/lib/ids.ts";
import { type Database, type DatabaseTransaction, sqlState } from "../client.ts";
import { leaveCommitMark } from "../queries/commit-marks.ts";
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

/** Ends a transaction whose earlier try turns out to have been committed. */
class CommittedBeforeError extends Error {}

/**
 * Writes units that hold statements of administration in one fenced transaction. Where the connection
 * breaks during the commit, it is tried again, and the mark that it leaves tells what became of the
 * earlier try.
 */
export async function commitStatements(
  { sql, instance }: { readonly sql: Database; readonly instance: InstanceIdentity },
  units: readonly StatementUnit[],
): Promise<ReadonlyMap<string, AccountTotals>> {
  const mark = newId("cmt");
  let totals: ReadonlyMap<string, AccountTotals> = new Map();
  for (;;) {
    try {
      await sql.begin(async (transaction) => {
        const [, isFirst] = await Promise.all([
          assertAlive(transaction, instance),
          leaveCommitMark(transaction, mark),
        ]);
        if (!isFirst) throw new CommittedBeforeError();
        totals = await writeLedger(transaction, instance, units);
        for (const unit of units) {
          for (const statement of unit.statements) await statement.run(transaction);
        }
      });
      return totals;
    } catch (error) {
      if (error instanceof CommittedBeforeError) return totals;
      const isTransient = sqlState(error) === "40P01" || sqlState(error) === "40001";
      if (!isTransient && !isOutcomeUnknown(error)) throw error;
      await Bun.sleep(RETRY_DELAY_MS);
    }
  }
}

async function assertAlive(sql: DatabaseTransaction, instance: InstanceIdentity): Promise<void> {
  const [row] = await sql`SELECT 1 FROM instances
    WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint AND alive FOR KEY SHARE`;
  if (!row) throw new FencedError("this instance was declared dead");
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
