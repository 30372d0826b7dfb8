import type { Database, DatabaseTransaction } from "../client.ts";
import { commitLedgerBatch, type InstanceIdentity } from "./commit-batch.ts";
import { type ExchangeBatch, exchangeLedgerBatch } from "./exchange-batch.ts";
import type { HoldVerdict } from "./hold-rows.ts";
import type { AccountTotals } from "./rows.ts";

export interface CommittedBatch {
  /** Accounts that have a row now. */
  readonly accountIds: Iterable<string>;
  /** Totals of the accounts of settlements, where holds are in memory. */
  readonly totals: ReadonlyMap<string, AccountTotals>;
  readonly verdicts: ReadonlyMap<string, HoldVerdict>;
}

/** Writes a batch as a whole. */
export type CommitBatch = (
  sql: Database | DatabaseTransaction,
  instance: InstanceIdentity,
  batch: ExchangeBatch,
) => Promise<CommittedBatch>;

const NO_TOTALS: ReadonlyMap<string, AccountTotals> = new Map();
const NO_VERDICTS: ReadonlyMap<string, HoldVerdict> = new Map();

/** Where one gateway is alone: holds are in its memory, and the ledger keeps checkpoints and charges. */
export const commitInMemoryHolds: CommitBatch = (sql, instance, batch) =>
  commitLedgerBatch(sql, instance, batch).then(withoutVerdicts);

function withoutVerdicts(totals: ReadonlyMap<string, AccountTotals>): CommittedBatch {
  return { accountIds: totals.keys(), totals, verdicts: NO_VERDICTS };
}

/** Where several share the database: holds stand in it. */
export const commitSharedHolds: CommitBatch = async (sql, instance, batch) => {
  const { accountIds, verdicts } = await exchangeLedgerBatch(sql, instance, batch);
  return { accountIds, totals: NO_TOTALS, verdicts };
};
