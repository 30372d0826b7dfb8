import type { Transaction } from "./transaction.ts";

/** Row locks of Postgres, weakest first (its documentation, section 13.3.2). */
export const LOCK_MODES = ["key share", "share", "no key update", "update"] as const;
export type LockMode = (typeof LOCK_MODES)[number];

const CONFLICTS: Readonly<Record<LockMode, readonly LockMode[]>> = {
  "key share": ["update"],
  share: ["no key update", "update"],
  "no key update": ["share", "no key update", "update"],
  update: LOCK_MODES,
};

export interface Waiter {
  readonly transaction: Transaction;
  readonly mode: LockMode;
  granted(): void;
}

/** Who holds one row, and who waits for it. */
export class RowLock {
  readonly holders = new Map<Transaction, LockMode>();
  waiters: Waiter[] = [];

  isHeldBy(transaction: Transaction, mode: LockMode): boolean {
    const held = this.holders.get(transaction);
    return held !== undefined && LOCK_MODES.indexOf(held) >= LOCK_MODES.indexOf(mode);
  }

  /** Takes the lock if no other transaction is in the way. */
  take(transaction: Transaction, mode: LockMode): boolean {
    if (this.isHeldBy(transaction, mode)) return true;
    if (this.#inTheWay(transaction, mode).length > 0) return false;
    this.holders.set(transaction, mode);
    transaction.locks.add(this);
    return true;
  }

  wait(waiter: Waiter): void {
    this.waiters.push(waiter);
    waiter.transaction.waitsFor = this;
  }

  /** Stops waiting, without the lock. */
  giveUp(transaction: Transaction): void {
    this.waiters = this.waiters.filter((waiter) => waiter.transaction !== transaction);
    transaction.waitsFor = undefined;
  }

  release(transaction: Transaction): void {
    if (!this.holders.delete(transaction)) return;
    transaction.locks.delete(this);
    this.wake();
  }

  /** Lets those go on who can, in the order in which they came. */
  wake(): void {
    for (const waiter of [...this.waiters]) {
      if (!this.waiters.includes(waiter)) continue;
      if (!this.take(waiter.transaction, waiter.mode)) continue;
      this.giveUp(waiter.transaction);
      waiter.granted();
    }
  }

  /** Transactions that keep this one from the lock. */
  blockersOf(transaction: Transaction): Transaction[] {
    const waiter = this.waiters.find((one) => one.transaction === transaction);
    return waiter === undefined ? [] : this.#inTheWay(transaction, waiter.mode);
  }

  #inTheWay(transaction: Transaction, mode: LockMode): Transaction[] {
    const inTheWay: Transaction[] = [];
    for (const [holder, held] of this.holders) {
      if (holder !== transaction && CONFLICTS[mode].includes(held)) inTheWay.push(holder);
    }
    return inTheWay;
  }
}

/** The transactions that wait for one another in a circle with this one; empty where none do. */
export function circleOf(start: Transaction): Transaction[] {
  const path: Transaction[] = [];
  const seen = new Set<Transaction>();
  const search = (transaction: Transaction): boolean => {
    if (transaction === start && path.length > 0) return true;
    if (seen.has(transaction)) return false;
    seen.add(transaction);
    path.push(transaction);
    for (const blocker of transaction.waitsFor?.blockersOf(transaction) ?? []) {
      if (search(blocker)) return true;
    }
    path.pop();
    return false;
  };
  return search(start) ? path : [];
}
