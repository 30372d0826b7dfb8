import { CHECK_VIOLATION, ModelledError, UNIQUE_VIOLATION } from "./errors.ts";
import { type LockMode, RowLock } from "./row-locks.ts";
import type { Running, Transaction } from "./transaction.ts";

/** A row with its last committed version, and the one that a running transaction has written. */
export interface Row<Value> {
  readonly table: Table<Value>;
  readonly id: string;
  readonly lock: RowLock;
  committed: Value | undefined;
  pending: Value | undefined;
  writer: Transaction | undefined;
}

/** A table of the model: rows are replaced as a whole, never changed in place. */
export class Table<Value> {
  readonly name: string;
  /** The name of a CHECK constraint that the row violates; undefined where it is in order. */
  readonly #violated: (value: Value) => string | undefined;
  readonly #rows = new Map<string, Row<Value>>();

  constructor(name: string, violated: (value: Value) => string | undefined = () => undefined) {
    this.name = name;
    this.#violated = violated;
  }

  /** What the transaction sees of the row now, without any lock. */
  read(transaction: Transaction | undefined, id: string): Value | undefined {
    const row = this.#rows.get(id);
    if (row === undefined) return undefined;
    return row.writer !== undefined && row.writer === transaction ? row.pending : row.committed;
  }

  /** Everything that the transaction sees, in the order of insertion. */
  *all(transaction?: Transaction): Generator<Value> {
    for (const row of this.#rows.values()) {
      const value =
        row.writer !== undefined && row.writer === transaction ? row.pending : row.committed;
      if (value !== undefined) yield value;
    }
  }

  /** The same of several; those that are not there are left out. */
  readAll(transaction: Transaction | undefined, ids: readonly string[]): Value[] {
    return ids.map((id) => this.read(transaction, id)).filter((value) => value !== undefined);
  }

  /** Locks the row and returns its latest version: what was waited for is seen. */
  *lock(transaction: Transaction, id: string, mode: LockMode): Running<Value | undefined> {
    const row = this.#rows.get(id);
    if (row === undefined) return undefined;
    if (row.committed === undefined && row.writer !== transaction) return undefined;
    if (!row.lock.take(transaction, mode)) yield { lock: row.lock, mode };
    return this.read(transaction, id);
  }

  /** Locks the row unless another transaction is in the way (SKIP LOCKED). */
  tryLock(transaction: Transaction, id: string, mode: LockMode): boolean {
    return this.#rows.get(id)?.lock.take(transaction, mode) === true;
  }

  /** Changes the row where `change` returns one. Returns the new version. */
  *update(
    transaction: Transaction,
    id: string,
    change: (value: Value) => Value | undefined,
  ): Running<Value | undefined> {
    const value = yield* this.lock(transaction, id, "no key update");
    if (value === undefined) return undefined;
    const changed = change(value);
    if (changed !== undefined) this.#write(transaction, id, changed);
    return changed;
  }

  *delete(transaction: Transaction, id: string): Running<Value | undefined> {
    const value = yield* this.lock(transaction, id, "update");
    if (value !== undefined) this.#write(transaction, id, undefined);
    return value;
  }

  /** False where there is one already: then nothing is written. Waits for one that may yet come or go. */
  *insertUnlessThere(transaction: Transaction, id: string, value: Value): Running<boolean> {
    for (;;) {
      const row = this.#rows.get(id) ?? this.#create(id);
      if (row.writer === undefined || row.writer === transaction) {
        if (this.read(transaction, id) !== undefined) return false;
        if (!row.lock.take(transaction, "update")) {
          yield { lock: row.lock, mode: "update" };
          continue;
        }
        this.#write(transaction, id, value);
        return true;
      }
      if (row.committed !== undefined && row.pending !== undefined) return false;
      yield { lock: row.lock, mode: "key share" };
      row.lock.release(transaction);
    }
  }

  *insert(transaction: Transaction, id: string, value: Value): Running<void> {
    if (!(yield* this.insertUnlessThere(transaction, id, value))) {
      throw new ModelledError(UNIQUE_VIOLATION, `duplicate key in ${this.name}: ${id}`);
    }
  }

  forgetEmpty(row: Row<Value>): void {
    const { committed, writer, lock } = row;
    if (committed !== undefined || writer !== undefined) return;
    if (lock.holders.size + lock.waiters.length === 0) this.#rows.delete(row.id);
  }

  #create(id: string): Row<Value> {
    const row: Row<Value> = {
      table: this,
      id,
      lock: new RowLock(),
      committed: undefined,
      pending: undefined,
      writer: undefined,
    };
    this.#rows.set(id, row);
    return row;
  }

  #write(transaction: Transaction, id: string, value: Value | undefined): void {
    const row = this.#rows.get(id)!;
    if (row.writer !== undefined && row.writer !== transaction) {
      throw new Error(`${this.name} ${id} is written without its lock`);
    }
    const violated = value && this.#violated(value);
    if (violated !== undefined) {
      throw new ModelledError(CHECK_VIOLATION, `${this.name} ${id} violates ${violated}`);
    }
    row.writer = transaction;
    row.pending = value;
    transaction.changed.add(row as Row<unknown>);
  }
}
