import { type MoneyHistory, spenderOf } from "./money-history.ts";
import type { WriterNote } from "./postgres/fence.ts";
import type { AccountRow, HoldRow, Tables, TransactionRow } from "./postgres/tables.ts";
import type { Change, Transaction } from "./postgres/transaction.ts";
import type { RequestRecord } from "./request-record.ts";
import { broken } from "./violation.ts";

interface Tail {
  readonly sequence: bigint;
  readonly balanceNano: bigint;
}

/** M1, M2, M3 and O1, looked at with every commit. */
export class LedgerPromises {
  readonly #tables: Tables;
  readonly #history: MoneyHistory;
  readonly #requests: ReadonlyMap<string, RequestRecord>;
  readonly #tails = new Map<string, Tail>();
  readonly #usages = new Map<string, TransactionRow>();
  readonly #refunds = new Map<string, bigint>();
  readonly #heldNano = new Map<string, bigint>();
  /** By key and by subject: charges, less what was given back. */
  readonly #spentNano = new Map<string, bigint>();
  /** When the first request arrived that an account was charged for. */
  readonly #sinceMs = new Map<string, number>();

  constructor(tables: Tables, history: MoneyHistory, requests: ReadonlyMap<string, RequestRecord>) {
    this.#tables = tables;
    this.#history = history;
    this.#requests = requests;
  }

  usageOf(requestId: string): TransactionRow | undefined {
    return this.#usages.get(requestId);
  }

  /** Undefined where nothing was given back. */
  refundedOf(requestId: string): bigint | undefined {
    return this.#refunds.get(requestId);
  }

  committed(transaction: Transaction, changes: readonly Change[]): void {
    this.#isByTheLiving(transaction);
    const posted = changes
      .filter(({ table }) => table === this.#tables.transactions)
      .map(({ after }) => after as TransactionRow)
      .sort((one, other) => Number(one.sequence - other.sequence));
    for (const row of posted) this.#posted(row);
    for (const change of changes) {
      if (change.table === this.#tables.holds) {
        this.#moveHeld(change.before as HoldRow | undefined, -1n);
        this.#moveHeld(change.after as HoldRow | undefined, 1n);
      }
    }
    for (const { table, after } of changes) {
      if (table === this.#tables.accounts) this.#account(after as AccountRow);
    }
  }

  /** Nothing is held, and nothing waits to be charged. */
  atRest(): void {
    for (const { request_id } of this.#tables.attempts.all()) {
      broken("M3", `${request_id} was never settled`);
    }
    for (const { id, instance_id } of this.#tables.holds.all()) {
      if (instance_id !== null) broken("M3", `the hold of ${id} never ended`);
    }
    const spentNano = new Map<string, bigint>();
    for (const account of this.#tables.accounts.all()) {
      const spender = spenderOf(account);
      if (spender === null || !account.kind.endsWith("day")) continue;
      spentNano.set(spender, (spentNano.get(spender) ?? 0n) + account.posted_nano);
    }
    for (const [spender, nano] of this.#spentNano) {
      const posted = spentNano.get(spender) ?? 0n;
      if (posted !== nano) broken("M2", `${spender} has spent ${nano}, and its days say ${posted}`);
    }
    for (const account of this.#tables.accounts.all()) {
      if (account.kind !== "org") continue;
      const tail = this.#tails.get(account.organization_id);
      if ((tail?.sequence ?? 0n) !== account.sequence) broken("M2", `${account.id} has a gap`);
    }
  }

  /** O1: an instance that was declared dead commits nothing. */
  #isByTheLiving({ notes }: Transaction): void {
    for (const { instanceId, epoch } of notes as WriterNote[]) {
      const row = this.#tables.instances.read(undefined, instanceId);
      if (row?.alive !== true || row.epoch !== epoch) {
        broken("O1", `${instanceId} commits after it was declared dead`);
      }
    }
  }

  /** M2 and M3. */
  #posted(row: TransactionRow): void {
    const tail = this.#tails.get(row.organization_id) ?? { sequence: 0n, balanceNano: 0n };
    const balanceNano = tail.balanceNano + row.amount_nano;
    if (row.sequence !== tail.sequence + 1n) broken("M2", `${row.id} is out of its order`);
    if (row.balance_after_nano !== balanceNano) {
      broken("M2", `${row.id} tells a balance of ${row.balance_after_nano}, not ${balanceNano}`);
    }
    this.#tails.set(row.organization_id, { sequence: row.sequence, balanceNano });
    this.#spend(row);
    if (row.request_id === null) return;
    if (this.#usages.has(row.request_id)) broken("M3", `${row.request_id} is charged twice`);
    this.#usages.set(row.request_id, row);
    const arrivedMs = this.#requests.get(row.request_id)?.arrivedMs ?? Number.NEGATIVE_INFINITY;
    const spenders = [row.key_id, ...this.#subjectsOf(row)];
    for (const account of this.#tables.accounts.all()) {
      const { id } = account;
      if (account.kind === "org" || !spenders.includes(spenderOf(account))) continue;
      this.#sinceMs.set(id, Math.min(arrivedMs, this.#sinceMs.get(id) ?? arrivedMs));
    }
  }

  /** What keys have spent, and that nothing is given back twice. */
  #spend(row: TransactionRow): void {
    const { key_id, amount_nano, refunded_request_id: refunded } = row;
    for (const spender of key_id === null ? [] : [key_id, ...this.#subjectsOf(row)]) {
      const before = this.#spentNano.get(spender) ?? 0n;
      this.#spentNano.set(spender, before + (row.budget_nano ?? -amount_nano));
    }
    if (refunded === null) return;
    if (this.#refunds.has(refunded)) broken("M3", `${refunded} is given back twice`);
    this.#refunds.set(refunded, amount_nano);
    const usage = this.usageOf(refunded);
    if (usage?.amount_nano !== -amount_nano) {
      broken("M3", `${amount_nano} are given back for ${refunded}`);
    }
    if ((usage.budget_nano ?? 0n) !== -(row.budget_nano ?? 0n)) {
      broken("M3", `${row.budget_nano} are given back to the budgets for ${refunded}`);
    }
  }

  #subjectsOf({ request_id, refunded_request_id }: TransactionRow): readonly string[] {
    return this.#requests.get(request_id ?? refunded_request_id ?? "")?.plan.subjects ?? [];
  }

  #moveHeld(row: HoldRow | undefined, sign: bigint): void {
    if (row === undefined) return;
    const { hold_nano: ofBalance, budget_nano: ofBudgets } = row;
    const { org_account, day_account, month_account, subject_accounts } = row;
    for (const id of [org_account, day_account, month_account, ...(subject_accounts ?? [])]) {
      const nano = id === row.org_account ? ofBalance : (ofBudgets ?? ofBalance);
      this.#heldNano.set(id, (this.#heldNano.get(id) ?? 0n) + sign * nano);
    }
  }

  /** M1 and M2. */
  #account(row: AccountRow): void {
    const held = this.#heldNano.get(row.id) ?? 0n;
    if (row.held_nano !== held) {
      broken("M3", `${row.id} holds ${row.held_nano}, and its holds come to ${held}`);
    }
    if (row.kind === "org") {
      const balanceNano = row.credit_nano - row.posted_nano;
      const tail = this.#tails.get(row.organization_id);
      const { credit_limit_nano: limit } = row;
      if (limit !== null && balanceNano < -limit) {
        broken("M1", `the balance of ${row.id} is ${balanceNano}, its credit limit ${limit}`);
      }
      if (balanceNano !== (tail?.balanceNano ?? 0n)) {
        broken("M2", `${row.id} has ${balanceNano}, its transactions come to ${tail?.balanceNano}`);
      }
      if (limit !== null && balanceNano + limit < row.held_nano) {
        broken("M1", `${row.id} holds more than its balance and its credit limit`);
      }
      return;
    }
    const sinceMs = this.#sinceMs.get(row.id);
    if (row.posted_nano === 0n || sinceMs === undefined) return;
    const highest = this.#history.highestBudgetSince(row, sinceMs);
    if (highest !== undefined && row.posted_nano > highest) {
      broken("M1", `${row.id} has spent ${row.posted_nano} of at most ${highest}`);
    }
  }
}
