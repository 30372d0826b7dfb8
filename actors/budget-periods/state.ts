/**
 * The daily and monthly budget of a spender: an API key, or an end user or tag with a budget.
 *
 * The record is loaded from its row and replaced when the row changes. Spend (`postedNano`) comes from the
 * ledger's commits. Holds of requests (`dayHeldNano`, `monthHeldNano`) are only in memory and survive a reload.
 * Holds that outlive processes (`longHeldNano`) come from the database.
 *
 * Each request changes the holds twice; all other data changes rarely. So holds are separate from the periods,
 * and the room for them is recalculated only when other data changes.
 */
import type { AccountTotals } from "../../db/ledger/rows.ts";
import { type Period, utcDay, utcMonth } from "../../src/lib/utc-time.ts";

export interface PeriodAccount {
  readonly accountId: string;
  readonly period: Period;
  readonly postedNano: bigint;
  /** Number of charges that were refunded to the period. */
  readonly refunds: bigint;
  readonly longHeldNano: bigint;
}

/** A spender. */
export interface Spender {
  readonly isActive: boolean;
  /** Null means no limit. */
  readonly dailyBudgetNano: bigint | null;
  readonly monthlyBudgetNano: bigint | null;
}

/** The periods to which a request is charged. */
export interface Periods {
  readonly day: PeriodAccount;
  readonly month: PeriodAccount;
}

/** The stored state of a spender, without derived amounts. */
export interface SpenderFacts<Record extends Spender> extends Periods {
  readonly id: string;
  readonly record: Record | undefined;
  /** Amounts held by requests that were admitted in the day and in the month. */
  readonly dayHeldNano: bigint;
  readonly monthHeldNano: bigint;
  /**
   * Accounts with an emitted budget.exhausted event. The value is true if at least 95 % of the budget was spent
   * then, so that the 100 % threshold event was emitted too.
   */
  readonly exhausted: ReadonlyMap<string, boolean>;
}

export interface SpenderState<Record extends Spender> extends SpenderFacts<Record> {
  /** Most that requests can hold: budget minus spend minus long holds. Undefined without a budget. */
  readonly dayRoomNano: bigint | undefined;
  readonly monthRoomNano: bigint | undefined;
}

/** The remaining budget of a period. */
export interface PeriodHeadroom {
  readonly accountId: string;
  readonly kind: "day" | "month";
  readonly periodStart: string;
  readonly budgetNano: bigint;
  /** Budget minus spend. */
  readonly remainingNano: bigint;
  /** Budget minus spend minus holds. */
  readonly availableNano: bigint;
}

export interface SpenderHeadroom {
  /** Undefined if the spender no longer exists. */
  readonly isActive: boolean | undefined;
  readonly dayAccount: string;
  readonly monthAccount: string;
  /** The periods that have a budget. */
  readonly limits: readonly PeriodHeadroom[];
}

/** The account ids of a spender's days and months. */
export interface PeriodNames {
  day(id: string, start: string): string;
  month(id: string, start: string): string;
}

export function emptyPeriods(names: PeriodNames, id: string, nowMs: number): Periods {
  const day = utcDay(nowMs);
  const month = utcMonth(nowMs);
  return {
    day: emptyPeriod(names.day(id, day.start), day),
    month: emptyPeriod(names.month(id, month.start), month),
  };
}

function emptyPeriod(accountId: string, period: Period): PeriodAccount {
  return { accountId, period, postedNano: 0n, refunds: 0n, longHeldNano: 0n };
}

export function spenderState<Record extends Spender>(
  facts: SpenderFacts<Record>,
): SpenderState<Record> {
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

/** Starts new periods when the day or month has ended. Holds of the old period are settled there. */
export function rollPeriods<Record extends Spender>(
  state: SpenderState<Record>,
  nowMs: number,
): SpenderState<Record> {
  if (nowMs < state.day.period.endMs) return state;
  const day = rolled(state.day, utcDay(nowMs));
  const month = rolled(state.month, utcMonth(nowMs));
  return spenderState({
    ...state,
    day,
    dayHeldNano: 0n,
    month,
    monthHeldNano: month === state.month ? state.monthHeldNano : 0n,
    exhausted: new Map(),
  });
}

function rolled(account: PeriodAccount, period: Period): PeriodAccount {
  const { accountId, period: before } = account;
  if (before.start === period.start) return account;
  return emptyPeriod(`${accountId.slice(0, -before.start.length)}${period.start}`, period);
}

export function headroom(state: SpenderState<Spender>): SpenderHeadroom {
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
  const remainingNano = budgetNano - account.postedNano;
  return {
    accountId: account.accountId,
    kind,
    periodStart: account.period.start,
    budgetNano,
    remainingNano,
    availableNano: remainingNano - heldNano - account.longHeldNano,
  };
}

/**
 * Returns the state with the hold, or undefined if the spender is inactive or too little is available. A hold of
 * 0 always succeeds for an active spender.
 */
export function hold<Record extends Spender>(
  state: SpenderState<Record>,
  holdNano: bigint,
): SpenderState<Record> | undefined {
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
 * Extends a hold in the named accounts. Returns undefined if too little is available, or if one of the periods
 * has ended and has a budget, because its spend is no longer known.
 */
export function extendHold<Record extends Spender>(
  state: SpenderState<Record>,
  change: HeldChange,
): SpenderState<Record> | undefined {
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

/** Changes the held amount in the named accounts by a positive or negative amount. */
export function changeHeld<Record extends Spender>(
  state: SpenderState<Record>,
  change: HeldChange,
): SpenderState<Record> {
  const { day, month, dayHeldNano, monthHeldNano } = state;
  return withHeld(
    state,
    day.accountId === change.dayAccount ? dayHeldNano + change.byNano : dayHeldNano,
    month.accountId === change.monthAccount ? monthHeldNano + change.byNano : monthHeldNano,
  );
}

/** Copies member by member for speed, because this runs for each request. */
function withHeld<Record extends Spender>(
  state: SpenderState<Record>,
  dayHeldNano: bigint,
  monthHeldNano: bigint,
): SpenderState<Record> {
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

/** Applies the ledger's new totals to the state's periods. */
export function notePosted<Record extends Spender>(
  state: SpenderState<Record>,
  totals: ReadonlyMap<string, AccountTotals>,
): SpenderState<Record> {
  const day = withTotals(state.day, totals.get(state.day.accountId));
  const month = withTotals(state.month, totals.get(state.month.accountId));
  return day === state.day && month === state.month
    ? state
    : spenderState({ ...state, day, month });
}

function withTotals(account: PeriodAccount, totals: AccountTotals | undefined): PeriodAccount {
  return totals === undefined ? account : posted(account, totals.postedNano, totals.sequence);
}

/**
 * Applies new totals if they are newer. Spend only grows between two refunds, so the larger of two totals with
 * the same number of refunds is the newer one.
 */
function posted(account: PeriodAccount, postedNano: bigint, refunds: bigint): PeriodAccount {
  const isNewer =
    refunds === account.refunds ? postedNano > account.postedNano : refunds > account.refunds;
  return isNewer ? { ...account, postedNano, refunds } : account;
}

/** Merges a loaded state: holds stay, and so does spend that is newer than the loaded snapshot. */
export function keepHolds<Record extends Spender>(
  previous: SpenderState<Record>,
  loaded: SpenderState<Record>,
): SpenderState<Record> {
  const day = mergePeriod(previous.day, loaded.day);
  const month = mergePeriod(previous.month, loaded.month);
  return spenderState({
    ...loaded,
    day,
    month,
    dayHeldNano: day.accountId === previous.day.accountId ? previous.dayHeldNano : 0n,
    monthHeldNano: month.accountId === previous.month.accountId ? previous.monthHeldNano : 0n,
  });
}

function mergePeriod(previous: PeriodAccount, loaded: PeriodAccount): PeriodAccount {
  // If the clock was set back over midnight, the later period stays because its holds are still open.
  if (previous.period.startMs > loaded.period.startMs) return previous;
  if (previous.accountId !== loaded.accountId) return loaded;
  return posted(loaded, previous.postedNano, previous.refunds);
}
