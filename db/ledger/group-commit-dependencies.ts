import type { Clock } from "../../src/lib/clock.ts";
import type { Database } from "../client.ts";
import type { CommitBatch } from "./batch-commit.ts";
import type { InstanceIdentity } from "./commit-batch.ts";
import type { HoldSource } from "./hold-source.ts";
import type { AccountTotals, Settlement } from "./rows.ts";

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
