import type { Tables } from "./tables.ts";

/** What keeps the promises in the database; a test takes one away at a time to see the checks catch it. */
export interface ModelGuards {
  /** Transactions of an instance that was declared dead are refused. */
  readonly fence: boolean;
  /** A hold is granted only where the money is there. */
  readonly limitInHold: boolean;
  /** Batches lock accounts in the order of their ids. */
  readonly orderedLocks: boolean;
  /** A request that is posted already is passed over, and cannot be posted twice. */
  readonly settleOnce: boolean;
  /** A transaction of statements that was committed is not carried out again. */
  readonly commitMarks: boolean;
}

export const ALL_GUARDS: ModelGuards = {
  fence: true,
  limitInHold: true,
  orderedLocks: true,
  settleOnce: true,
  commitMarks: true,
};

/** What the functions of the model work on. */
export interface ModelContext {
  readonly tables: Tables;
  readonly guards: ModelGuards;
  nowMs(): number;
  /** A number that no other call returns; ascending. */
  nextId(): number;
  /** True where a transaction is to let others come between its locks. */
  isInterrupted(): boolean;
  shuffled<Item>(items: readonly Item[]): Item[];
}
