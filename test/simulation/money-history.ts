import type { AccountRow, ApiKeyRow, SubjectBudgetRow, Tables } from "./postgres/tables.ts";
import type { Change } from "./postgres/transaction.ts";

interface Moment {
  readonly atMs: number;
  /** Null where there is no limit. */
  readonly availableNano: bigint | null;
  readonly remainingNano: bigint | null;
}

interface Budgets {
  readonly atMs: number;
  readonly daily: bigint | null;
  readonly monthly: bigint | null;
}

/** How long an instance may not know of a change. */
const NEWS_MS = 1_000;
const NO_LIMIT = 10n ** 30n;

/** What accounts had free, and what keys were allowed, at every moment of a schedule. */
export class MoneyHistory {
  readonly #tables: Tables;
  readonly #nowMs: () => number;
  readonly #accounts = new Map<string, Moment[]>();
  readonly #budgets = new Map<string, Budgets[]>();

  constructor(tables: Tables, nowMs: () => number) {
    this.#tables = tables;
    this.#nowMs = nowMs;
  }

  committed(changes: readonly Change[]): void {
    for (const { table, after } of changes) {
      if (after === undefined) continue;
      if (table === this.#tables.accounts) this.#noteAccount(after as AccountRow);
      else if (table === this.#tables.apiKeys) this.#noteBudgets(after as ApiKeyRow);
      else if (table === this.#tables.subjectBudgets) this.#noteBudgets(after as SubjectBudgetRow);
    }
  }

  /**
   * The least that all accounts of a payer had at any moment since, including changes that no instance may know
   * of yet; without an organization, the spenders alone: its key and its subjects.
   */
  leastSince(
    organizationId: string | undefined,
    spenders: readonly string[],
    sinceMs: number,
  ): { readonly availableNano: bigint; readonly remainingNano: bigint } {
    let availableNano = NO_LIMIT;
    let remainingNano = NO_LIMIT;
    for (const [id, moments] of this.#accounts) {
      const isIts =
        id === `org:${organizationId}` || spenders.some((spender) => id.includes(`:${spender}:`));
      if (!isIts) continue;
      for (const moment of within(moments, sinceMs - NEWS_MS)) {
        if (moment.availableNano !== null && moment.availableNano < availableNano)
          availableNano = moment.availableNano;
        const { remainingNano: unspent } = moment;
        if (unspent !== null && unspent < remainingNano) remainingNano = unspent;
      }
    }
    for (const spender of spenders) {
      for (const budgets of within(this.#budgets.get(spender) ?? [], sinceMs - NEWS_MS)) {
        for (const budget of [budgets.daily, budgets.monthly]) {
          if (budget === null) continue;
          if (budget < availableNano) availableNano = budget;
          if (budget < remainingNano) remainingNano = budget;
        }
      }
    }
    return { availableNano, remainingNano };
  }

  /** The highest budget of the account that was in force since; undefined where it had none for a moment. */
  highestBudgetSince(account: AccountRow, sinceMs: number): bigint | undefined {
    let highest = 0n;
    const spender = spenderOf(account)!;
    for (const budgets of within(this.#budgets.get(spender) ?? [], sinceMs - NEWS_MS)) {
      const budget = isDay(account) ? budgets.daily : budgets.monthly;
      if (budget === null) return undefined;
      if (budget > highest) highest = budget;
    }
    return highest;
  }

  #noteAccount(row: AccountRow): void {
    let moments = this.#accounts.get(row.id);
    if (moments === undefined) {
      moments = [];
      this.#accounts.set(row.id, moments);
    }
    const limit = this.#limitOf(row);
    const remainingNano = limit === null ? null : limit - row.posted_nano;
    const availableNano = remainingNano === null ? null : remainingNano - row.held_nano;
    moments.push({ atMs: this.#nowMs(), availableNano, remainingNano });
  }

  #noteBudgets(row: ApiKeyRow | SubjectBudgetRow): void {
    const budgets = this.#budgets.get(row.id) ?? [];
    this.#budgets.set(row.id, budgets);
    const { daily_budget_nano: daily, monthly_budget_nano: monthly } = row;
    budgets.push({ atMs: this.#nowMs(), daily, monthly });
    for (const account of this.#tables.accounts.all()) {
      if (spenderOf(account) === row.id) this.#noteAccount(account);
    }
  }

  #limitOf(row: AccountRow): bigint | null {
    if (row.kind === "org") {
      return row.credit_limit_nano === null ? null : row.credit_nano + row.credit_limit_nano;
    }
    const spender =
      row.budget_id === null
        ? this.#tables.apiKeys.read(undefined, row.key_id!)
        : this.#tables.subjectBudgets.read(undefined, row.budget_id);
    if (spender === undefined) return null;
    return isDay(row) ? spender.daily_budget_nano : spender.monthly_budget_nano;
  }
}

/** The key, or the budget of a subject; null of an organization's balance. */
export function spenderOf({ key_id, budget_id }: AccountRow): string | null {
  return key_id ?? budget_id;
}

function isDay({ kind }: AccountRow): boolean {
  return kind.endsWith("day");
}

/** What was so at some moment since: the last entry before it, and all after it. */
function within<Entry extends { readonly atMs: number }>(
  entries: readonly Entry[],
  sinceMs: number,
): readonly Entry[] {
  let first = entries.length - 1;
  while (first > 0 && entries[first]!.atMs > sinceMs) first--;
  return entries.slice(Math.max(0, first));
}
