import type { LockMode, RowLock } from "./row-locks.ts";
import type { Row, Table } from "./table.ts";

/** What a statement in the model may wait for: a lock, or, without one, for others to come between. */
export interface LockRequest {
  readonly lock: RowLock;
  readonly mode: LockMode;
}

export const A_MOMENT = "a moment";

/** A statement of the model: it goes on where it waited once it has the lock. */
export type Running<Result> = Generator<LockRequest | typeof A_MOMENT, Result, void>;

/** A row that a transaction has changed. */
export interface Change {
  readonly table: Table<unknown>;
  readonly id: string;
  readonly before: unknown;
  readonly after: unknown;
}

/** A transaction at READ COMMITTED: what others have committed is seen at once, what they have not is not. */
export class Transaction {
  readonly locks = new Set<RowLock>();
  readonly changed = new Set<Row<unknown>>();
  readonly notifications: string[] = [];
  /** What it was asked, for the checks of the promises. */
  readonly notes: unknown[] = [];
  waitsFor: RowLock | undefined;
  isLedgerBatch = false;

  /** Makes everything visible, and returns what has changed. */
  commit(): Change[] {
    const changes: Change[] = [];
    for (const row of this.changed) {
      changes.push({ table: row.table, id: row.id, before: row.committed, after: row.pending });
      row.committed = row.pending;
      row.pending = undefined;
      row.writer = undefined;
    }
    this.#end();
    return changes;
  }

  rollBack(): void {
    for (const row of this.changed) {
      row.pending = undefined;
      row.writer = undefined;
    }
    this.#end();
  }

  #end(): void {
    const rows = [...this.changed];
    this.changed.clear();
    for (const lock of [...this.locks]) lock.release(this);
    for (const row of rows) row.table.forgetEmpty(row);
  }
}
