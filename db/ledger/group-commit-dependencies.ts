import type { Clock } from "../../src/lib/clock.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import { type ExchangeBatch, exchangeLedgerBatch } from "./exchange-batch.ts";
import type { HoldSource, HoldVerdict } from "./hold-rows.ts";
import type { AccountTotals, Settlement } from "./rows.ts";
import { commitLedgerBatch, type InstanceIdentity } from "./settle-batch.ts";

export interface GroupCommitDependencies {
  /** A connection of its own, so that no read stands before a commit. */
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  /** Called once a batch is durable and before its units learn of it. Must not throw. */
  onCommitted(settlements: readonly Settlement[], totals: ReadonlyMap<string, AccountTotals>): void;
  /** Called when the database says that this instance was declared dead: it must stop. */
  onFenced(): void;
  /** A charge became durable although its caller had given it up: it has to be refunded. Must not throw. */
  onPostedAbandoned(settlement: Settlement): void;
  /**
   * A CHECK constraint of the accounts has refused to write this alone: the program is at fault, and would
   * have overspent. Must not throw.
   */
  onGuardViolated(error: unknown, requestIds: readonly string[]): void;
  onBatch?(sizeUnits: number, durationMs: number): void;
  /** How a batch is written where holds stand in the database; else they are in memory. */
  readonly commitBatch?: CommitBatch;
  /** Asks for holds with each batch. */
  readonly holds?: HoldSource;
  /** Resolves when a try whose outcome is unknown is certainly over: committed or undone. */
  endEarlierTry(): Promise<void>;
  /** For the waits between tries. */
  readonly clock?: Clock;
}

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

/** Of a single-node gateway: holds are in its memory, and the ledger keeps checkpoints and charges. */
export const commitInMemoryHolds: CommitBatch = (sql, instance, batch) =>
  commitLedgerBatch(sql, instance, batch).then(withoutVerdicts);

function withoutVerdicts(totals: ReadonlyMap<string, AccountTotals>): CommittedBatch {
  return { accountIds: totals.keys(), totals, verdicts: NO_VERDICTS };
}

/** Of a clustered gateway: holds are rows of the database. */
export const commitSharedHolds: CommitBatch = async (sql, instance, batch) => {
  const { accountIds, verdicts } = await exchangeLedgerBatch(sql, instance, batch);
  return { accountIds, totals: NO_TOTALS, verdicts };
};
