/**
 * Decisions of the actor of one API key. A key is
 *
 *   unknown   no row, or deleted: nothing is allowed, permanently
 *   inactive  is_active false: nothing is allowed until it is switched on again
 *   expired   expires_at has passed: nothing is allowed until it is moved
 *   active    what its scopes, models, rate limit and budgets allow
 *
 * The record comes from its row and changes by `update` and `remove` (its manager) and by a reload after
 * another process changed it. Spend (`postedNano`) comes from the ledger's commits; holds of requests
 * (`dayHeldNano`, `monthHeldNano`) live in this memory alone and survive a reload; holds that outlive
 * processes (`longHeldNano`) come from the database.
 *
 * Holds change twice for each request, all else seldom: so they stand apart from the periods, and the room
 * that they have there is reckoned when one of the others changes.
 */
import { type AccountTotals, dayAccountId, monthAccountId } from "../../db/ledger/rows.ts";
import type { ApiKeyRecord } from "../../src/lib/api-key-record.ts";
import { type Period, utcDay, utcMonth } from "../../src/lib/utc-time.ts";

export interface PeriodAccount {
  readonly accountId: string;
  readonly period: Period;
  readonly postedNano: bigint;
  /** How often a charge was given back to the period. */
  readonly refunds: bigint;
  readonly longHeldNano: bigint;
}

/** Where a request of the key is charged. */
export interface KeyPeriods {
  readonly day: PeriodAccount;
  readonly month: PeriodAccount;
}

/** What is known of a key, without what follows from it. */
export interface ApiKeyFacts extends KeyPeriods {
  readonly id: string;
  readonly record: ApiKeyRecord | undefined;
  /** Held by requests that were admitted in the day, and in the month. */
  readonly dayHeldNano: bigint;
  readonly monthHeldNano: bigint;
  /** Accounts for which budget.exhausted is known to have been emitted. */
  readonly exhausted: ReadonlySet<string>;
}

export interface ApiKeyState extends ApiKeyFacts {
  /** What requests may hold at most: budget minus spend minus long holds. Undefined without a budget. */
  readonly dayRoomNano: bigint | undefined;
  readonly monthRoomNano: bigint | undefined;
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

export function emptyPeriods(id: string, nowMs: number): KeyPeriods {
  const day = utcDay(nowMs);
  const month = utcMonth(nowMs);
  const empty = { postedNano: 0n, refunds: 0n, longHeldNano: 0n };
  return {
    day: { accountId: dayAccountId(id, day.start), period: day, ...empty },
    month: { accountId: monthAccountId(id, month.start), period: month, ...empty },
  };
}

export function keyState(facts: ApiKeyFacts): ApiKeyState {
  const { id, record, day, month, exhausted, dayHeldNano, monthHeldNano } = facts;
  return {
    id,
    record,
    day,
    month,
    exhausted,
    dayRoomNano: roomNano(record?.dailyBudgetNano, day),
    monthRoomNano: roomNano(record?.monthlyBudgetNano, month),
    dayHeldNano,
    monthHeldNano,
  };
}

function roomNano(
  budgetNano: bigint | null | undefined,
  { postedNano, longHeldNano }: PeriodAccount,
): bigint | undefined {
  return budgetNano == null ? undefined : budgetNano - postedNano - longHeldNano;
}

/** A new day or month begins with nothing spent; what is still held for the old one settles there. */
export function rollPeriods(state: ApiKeyState, nowMs: number): ApiKeyState {
  if (nowMs < state.day.period.endMs) return state;
  const fresh = emptyPeriods(state.id, nowMs);
  const sameMonth = fresh.month.accountId === state.month.accountId;
  return keyState({
    ...state,
    day: fresh.day,
    dayHeldNano: 0n,
    month: sameMonth ? state.month : fresh.month,
    monthHeldNano: sameMonth ? state.monthHeldNano : 0n,
    exhausted: new Set(),
  });
}

export function headroom(state: ApiKeyState): KeyHeadroom {
  const limits: PeriodHeadroom[] = [];
  const { record, day, month } = state;
  const daily = record?.dailyBudgetNano ?? null;
  const monthly = record?.monthlyBudgetNano ?? null;
  if (daily !== null) limits.push(periodHeadroom("day", day, daily, state.dayHeldNano));
  if (monthly !== null) limits.push(periodHeadroom("month", month, monthly, state.monthHeldNano));
  return {
    isActive: record?.isActive,
    dayAccount: day.accountId,
    monthAccount: month.accountId,
    limits,
  };
}

function periodHeadroom(
  kind: "day" | "month",
  account: PeriodAccount,
  budgetNano: bigint,
  heldNano: bigint,
): PeriodHeadroom {
  const unspentNano = budgetNano - account.postedNano;
  return {
    accountId: account.accountId,
    kind,
    periodStart: account.period.start,
    budgetNano,
    unspentNano,
    freeNano: unspentNano - heldNano - account.longHeldNano,
  };
}

/** Undefined where the key may not be used, or has not so much free. What costs nothing needs no money. */
export function hold(state: ApiKeyState, holdNano: bigint): ApiKeyState | undefined {
  if (state.record?.isActive !== true) return undefined;
  if (holdNano === 0n) return state;
  const { dayRoomNano, monthRoomNano } = state;
  const dayHeldNano = state.dayHeldNano + holdNano;
  if (dayRoomNano !== undefined && dayHeldNano > dayRoomNano) return undefined;
  const monthHeldNano = state.monthHeldNano + holdNano;
  if (monthRoomNano !== undefined && monthHeldNano > monthRoomNano) return undefined;
  return withHeld(state, dayHeldNano, monthHeldNano);
}

/**
 * Holds more in the periods that the accounts name. Undefined where there is not so much free, or where one
 * of them is over and has a budget: what is spent of it is not known any more.
 */
export function extendHold(state: ApiKeyState, change: HeldChange): ApiKeyState | undefined {
  if (state.record?.isActive !== true) return undefined;
  const { day, month, dayRoomNano, monthRoomNano } = state;
  const isFree = (account: string, period: PeriodAccount, room: bigint | undefined, held: bigint) =>
    room === undefined || (period.accountId === account && held + change.byNano <= room);
  if (!isFree(change.dayAccount, day, dayRoomNano, state.dayHeldNano)) return undefined;
  if (!isFree(change.monthAccount, month, monthRoomNano, state.monthHeldNano)) return undefined;
  return changeHeld(state, change);
}

export interface HeldChange {
  readonly dayAccount: string;
  readonly monthAccount: string;
  readonly byNano: bigint;
}

/** Adds to (or, negative, takes from) what is held in the periods that the accounts name. */
export function changeHeld(state: ApiKeyState, change: HeldChange): ApiKeyState {
  const { day, month, dayHeldNano, monthHeldNano } = state;
  return withHeld(
    state,
    day.accountId === change.dayAccount ? dayHeldNano + change.byNano : dayHeldNano,
    month.accountId === change.monthAccount ? monthHeldNano + change.byNano : monthHeldNano,
  );
}

/** Member by member, because it is done for each request. */
function withHeld(state: ApiKeyState, dayHeldNano: bigint, monthHeldNano: bigint): ApiKeyState {
  return {
    id: state.id,
    record: state.record,
    day: state.day,
    month: state.month,
    exhausted: state.exhausted,
    dayRoomNano: state.dayRoomNano,
    monthRoomNano: state.monthRoomNano,
    dayHeldNano,
    monthHeldNano,
  };
}

/** Notes what the ledger tells of accounts, where the state's periods are among them. */
export function notePosted(
  state: ApiKeyState,
  totals: ReadonlyMap<string, AccountTotals>,
): ApiKeyState {
  const day = withTotals(state.day, totals.get(state.day.accountId));
  const month = withTotals(state.month, totals.get(state.month.accountId));
  return day === state.day && month === state.month ? state : keyState({ ...state, day, month });
}

function withTotals(account: PeriodAccount, totals: AccountTotals | undefined): PeriodAccount {
  return totals === undefined ? account : posted(account, totals.postedNano, totals.sequence);
}

/** Spend only grows between two refunds, so of two totals behind equally many the larger is the newer. */
function posted(account: PeriodAccount, postedNano: bigint, refunds: bigint): PeriodAccount {
  const isNewer =
    refunds === account.refunds ? postedNano > account.postedNano : refunds > account.refunds;
  return isNewer ? { ...account, postedNano, refunds } : account;
}

/** What was loaded replaces the record; holds, and spend newer than the loaded snapshot, stay. */
export function keepHolds(previous: ApiKeyState, loaded: ApiKeyState): ApiKeyState {
  const day = mergePeriod(previous.day, loaded.day);
  const month = mergePeriod(previous.month, loaded.month);
  return keyState({
    ...loaded,
    day,
    month,
    dayHeldNano: day.accountId === previous.day.accountId ? previous.dayHeldNano : 0n,
    monthHeldNano: month.accountId === previous.month.accountId ? previous.monthHeldNano : 0n,
  });
}

function mergePeriod(previous: PeriodAccount, loaded: PeriodAccount): PeriodAccount {
  // Where the clock was set back over midnight, the later period stays: its holds are still running.
  if (previous.period.startMs > loaded.period.startMs) return previous;
  if (previous.accountId !== loaded.accountId) return loaded;
  return posted(loaded, previous.postedNano, previous.refunds);
}
