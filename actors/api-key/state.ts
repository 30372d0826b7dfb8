/**
 * Decisions of the actor of one API key. A key is
 *
 *   unknown   no row, or deleted: nothing is allowed, for good
 *   inactive  is_active false: nothing is allowed until it is switched on again
 *   expired   expires_at has passed: nothing is allowed until it is moved
 *   active    what its scopes, models, rate limit and budgets allow
 *
 * The record comes from its row and changes by `update` and `remove` (its manager) and by a reload after
 * another process changed it. Spend (`postedNano`) comes from the ledger's commits; holds of requests
 * (`heldNano`) live in this memory alone and survive a reload; holds that outlive processes
 * (`longHeldNano`) come from the database.
 */
import { dayAccountId, monthAccountId } from "../../db/ledger/rows.ts";
import type { ApiKeyRecord } from "../../src/lib/api-key-record.ts";
import { type Period, utcDay, utcMonth } from "../../src/lib/periods.ts";

export interface PeriodAccount {
  readonly accountId: string;
  readonly period: Period;
  readonly postedNano: bigint;
  /** How often a charge was given back to the period. */
  readonly refunds: bigint;
  readonly heldNano: bigint;
  readonly longHeldNano: bigint;
}

/** What the database tells of what a period has spent. */
export interface PeriodSpend {
  readonly accountId: string;
  readonly postedNano: bigint;
  readonly refunds: bigint;
}

export interface ApiKeyState {
  readonly id: string;
  readonly record: ApiKeyRecord | undefined;
  readonly day: PeriodAccount;
  readonly month: PeriodAccount;
  /** Accounts for which budget.exhausted is known to have been emitted. */
  readonly exhausted: ReadonlySet<string>;
}

/** What may still be spent in a period: undefined where the key has no such budget. */
export interface PeriodHeadroom {
  readonly accountId: string;
  readonly kind: "day" | "month";
  readonly periodStart: string;
  readonly budgetNano: bigint;
  /** Budget minus spend. */
  readonly unspentNano: bigint;
  /** Budget minus spend minus holds. */
  readonly freeNano: bigint;
}

export interface KeyHeadroom {
  /** Undefined where the key does not exist any more. */
  readonly isActive: boolean | undefined;
  readonly dayAccount: string;
  readonly monthAccount: string;
  readonly limits: readonly PeriodHeadroom[];
}

export function emptyPeriods(id: string, nowMs: number): Pick<ApiKeyState, "day" | "month"> {
  const day = utcDay(nowMs);
  const month = utcMonth(nowMs);
  const empty = { postedNano: 0n, refunds: 0n, heldNano: 0n, longHeldNano: 0n };
  return {
    day: { accountId: dayAccountId(id, day.start), period: day, ...empty },
    month: { accountId: monthAccountId(id, month.start), period: month, ...empty },
  };
}

/** A new day or month begins with nothing spent; what is still held for the old one settles there. */
export function rollPeriods(state: ApiKeyState, nowMs: number): ApiKeyState {
  if (nowMs < state.day.period.endMs) return state;
  const fresh = emptyPeriods(state.id, nowMs);
  const sameMonth = fresh.month.accountId === state.month.accountId;
  return {
    ...state,
    day: fresh.day,
    month: sameMonth ? state.month : fresh.month,
    exhausted: new Set(),
  };
}

export function headroom(state: ApiKeyState): KeyHeadroom {
  const limits: PeriodHeadroom[] = [];
  const daily = state.record?.dailyBudgetNano ?? null;
  const monthly = state.record?.monthlyBudgetNano ?? null;
  if (daily !== null) limits.push(periodHeadroom("day", state.day, daily));
  if (monthly !== null) limits.push(periodHeadroom("month", state.month, monthly));
  return {
    isActive: state.record?.isActive,
    dayAccount: state.day.accountId,
    monthAccount: state.month.accountId,
    limits,
  };
}

function periodHeadroom(
  kind: "day" | "month",
  account: PeriodAccount,
  budgetNano: bigint,
): PeriodHeadroom {
  const unspentNano = budgetNano - account.postedNano;
  return {
    accountId: account.accountId,
    kind,
    periodStart: account.period.start,
    budgetNano,
    unspentNano,
    freeNano: unspentNano - account.heldNano - account.longHeldNano,
  };
}

/** Adds to (or, negative, takes from) what is held in the periods that the accounts name. */
export function changeHeld(
  state: ApiKeyState,
  change: { readonly dayAccount: string; readonly monthAccount: string; readonly byNano: bigint },
): ApiKeyState {
  const day =
    state.day.accountId === change.dayAccount ? held(state.day, change.byNano) : state.day;
  const month =
    state.month.accountId === change.monthAccount ? held(state.month, change.byNano) : state.month;
  return { id: state.id, record: state.record, day, month, exhausted: state.exhausted };
}

function held(account: PeriodAccount, byNano: bigint): PeriodAccount {
  return {
    accountId: account.accountId,
    period: account.period,
    postedNano: account.postedNano,
    refunds: account.refunds,
    longHeldNano: account.longHeldNano,
    heldNano: account.heldNano + byNano,
  };
}

/** Spend only grows between two refunds, so of two totals behind equally many the larger is the newer. */
export function notePosted(state: ApiKeyState, spend: PeriodSpend): ApiKeyState {
  if (state.day.accountId === spend.accountId) return { ...state, day: posted(state.day, spend) };
  if (state.month.accountId === spend.accountId) {
    return { ...state, month: posted(state.month, spend) };
  }
  return state;
}

function posted(account: PeriodAccount, { postedNano, refunds }: PeriodSpend): PeriodAccount {
  const isNewer =
    refunds === account.refunds ? postedNano > account.postedNano : refunds > account.refunds;
  return isNewer ? { ...account, postedNano, refunds } : account;
}

/** What was loaded replaces the record; holds, and spend newer than the loaded snapshot, stay. */
export function keepHolds(previous: ApiKeyState, loaded: ApiKeyState): ApiKeyState {
  return {
    ...loaded,
    day: mergePeriod(previous.day, loaded.day),
    month: mergePeriod(previous.month, loaded.month),
  };
}

function mergePeriod(previous: PeriodAccount, loaded: PeriodAccount): PeriodAccount {
  // Where the clock was set back over midnight, the later period stays: its holds are still running.
  if (previous.period.startMs > loaded.period.startMs) return previous;
  if (previous.accountId !== loaded.accountId) return loaded;
  return posted({ ...loaded, heldNano: previous.heldNano }, previous);
}
