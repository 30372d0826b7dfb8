import { type BatchRows, type Charge, chargesOf, type DemandRow } from "./batch-rows.ts";
import { emitBudgetEvents } from "./budget-events.ts";
import { BEYOND_HOLD, ModelledError, NOT_NULL_VIOLATION } from "./errors.ts";
import { passFence } from "./fence.ts";
import {
  createAccounts,
  isPosted,
  keepCheckpoints,
  lockAccounts,
  postUsage,
} from "./ledger-parts.ts";
import type { ModelContext } from "./model-context.ts";
import type { HoldRow } from "./tables.ts";
import type { Running, Transaction } from "./transaction.ts";

/** An account of the batch, as it stands behind its lock; `limit` is null where there is none. */
interface Place {
  readonly id: string;
  readonly kind: string | undefined;
  readonly limit: bigint | null;
  readonly balance: bigint;
  readonly sequence: bigint | undefined;
  readonly isActive: boolean | null;
  unspent: bigint | null;
  free: bigint | null;
  charged: bigint;
  moved: bigint;
  count: bigint;
  isBlocked: boolean;
}

type HeadroomRow = [limit: string | null, unspent: string | null, free: string | null];
type VerdictRow = Record<string, unknown> & { readonly request_id: string };

type PlacesOfRow = readonly [organization: Place, day: Place, month: Place, ...subjects: Place[]];

/** Of the balance, and of the budgets of the key. */
interface Amounts {
  readonly nano: bigint;
  readonly budget: bigint;
}

interface Granted extends Amounts {
  readonly row: DemandRow;
}

/** As ledger_exchange_batch: holds stand in the database. */
export function* ledgerExchange(
  context: ModelContext,
  transaction: Transaction,
  batch: BatchRows,
): Running<VerdictRow[]> {
  const { tables } = context;
  const writer = { instanceId: batch.instance, epoch: BigInt(batch.epoch) };
  yield* passFence(context, transaction, writer);
  yield* createAccounts(context, transaction, batch);
  yield* lockAccounts(context, transaction, batch.account_ids ?? []);
  const charges = chargesOf(batch);
  const postedBefore = new Set(
    batch.recheck
      ? charges.map(({ requestId }) => requestId).filter((id) => isPosted(context, transaction, id))
      : [],
  );
  const places = placesOf(context, transaction, batch);
  const held = yield* endHolds(context, transaction, batch, places);
  chargeEnded(context, transaction, batch, { places, held, postedBefore });
  const { granted, verdicts } = yield* decideHolds(context, transaction, batch, places);
  for (const { row, nano, budget } of granted) {
    const [organization, day, month, ...subjects] = placesOfRow(places, row);
    yield* tables.holds.insert(transaction, row.request_id, {
      id: row.request_id,
      instance_id: batch.instance,
      epoch: writer.epoch,
      org_account: organization.id,
      day_account: day.id,
      month_account: month.id,
      subject_accounts: subjects.length === 0 ? null : subjects.map(({ id }) => id),
      hold_nano: nano,
      budget_nano: row.budget_full_nano === undefined ? null : budget,
    });
  }
  yield* moveTotals(context, transaction, places);
  yield* keepCheckpoints(context, transaction, batch);
  if (batch.settlements !== undefined) {
    const due = charges
      .filter(({ requestId }) => !postedBefore.has(requestId))
      .map((charge) => ({
        ...charge,
        budget_nano:
          charge.budget_nano ?? reapedBudget(context, transaction, batch, charge.requestId),
      }));
    yield* postAll(context, transaction, places, due);
    const moved = places.filter(({ count }) => count > 0n).map(({ id }) => id);
    yield* emitBudgetEvents(context, transaction, moved, false);
  }
  for (const id of batch.attempts ?? []) yield* tables.attempts.delete(transaction, id);
  return verdicts;
}

function placesOfRow(
  places: readonly Place[],
  { accounts }: Pick<DemandRow, "accounts">,
): PlacesOfRow {
  return accounts.map((place) => places[place - 1]!) as unknown as PlacesOfRow;
}

/** Ends holds of the accounts that were locked. Returns what each came to. */
function* endHolds(
  { tables }: ModelContext,
  transaction: Transaction,
  batch: BatchRows,
  places: readonly Place[],
): Running<Map<number, Amounts>> {
  const held = new Map<number, Amounts>();
  for (const row of batch.ended ?? []) {
    const of = placesOfRow(places, row);
    const hold = tables.holds.read(transaction, row.request_id);
    if (hold === undefined || !isOf(hold, of)) continue;
    const ended = yield* tables.holds.delete(transaction, row.request_id);
    if (ended === undefined) continue;
    const amounts = amountsOf(ended.hold_nano, ended.budget_nano);
    held.set(row.position, amounts);
    for (const [place, nano] of shares(of, amounts)) {
      place.moved -= nano;
      if (place.free !== null) place.free += nano;
    }
  }
  return held;
}

function amountsOf(nano: bigint, budget: bigint | null): Amounts {
  return { nano, budget: budget ?? nano };
}

/** Each account of a request, with its amount. */
function shares([organization, ...others]: PlacesOfRow, { nano, budget }: Amounts) {
  return [[organization, nano], ...others.map((place) => [place, budget])] as [Place, bigint][];
}

/** As ledger_reaped_budget. */
function reapedBudget(
  { tables }: ModelContext,
  transaction: Transaction,
  batch: BatchRows,
  requestId: string,
): bigint | null {
  if (batch.reaping !== true) return null;
  return tables.attempts.read(transaction, requestId)?.budget_charge_nano ?? null;
}

function isOf(hold: HoldRow, of: PlacesOfRow): boolean {
  const accounts = [hold.org_account, hold.day_account, hold.month_account];
  return accounts.every((id, index) => id === of[index]!.id);
}

interface Ended {
  readonly places: readonly Place[];
  readonly held: ReadonlyMap<number, Amounts>;
  readonly postedBefore: ReadonlySet<string>;
}

function chargeEnded(
  context: ModelContext,
  transaction: Transaction,
  batch: BatchRows,
  { places, held, postedBefore }: Ended,
): void {
  for (const row of batch.ended ?? []) {
    const { request_id: requestId, position, charge_nano: chargeNano } = row;
    if (chargeNano === undefined || postedBefore.has(requestId)) continue;
    const told = row.budget_nano === undefined ? null : BigInt(row.budget_nano);
    const budget = told ?? reapedBudget(context, transaction, batch, requestId);
    const charged = amountsOf(BigInt(chargeNano), budget);
    const ofAttempt =
      batch.reaping === true ? heldInMemory(context, transaction, requestId) : NOTHING;
    const most = held.get(position) ?? ofAttempt;
    if (charged.nano > most.nano || charged.budget > most.budget) throw beyondHold();
    for (const [place, nano] of shares(placesOfRow(places, row), charged)) {
      if (place.sequence === undefined) throw withoutAccount();
      charge(place, nano);
    }
  }
}

/** What a dead single-node gateway had held in its memory, as its attempt tells. */
function heldInMemory({ tables }: ModelContext, transaction: Transaction, id: string): Amounts {
  const attempt = tables.attempts.read(transaction, id);
  const instance = attempt && tables.instances.read(transaction, attempt.instance_id);
  const isSingleNode = instance?.is_alone === true && instance.epoch === attempt!.epoch;
  return isSingleNode ? amountsOf(attempt!.hold_nano, attempt!.budget_hold_nano) : NOTHING;
}

const NOTHING: Amounts = { nano: 0n, budget: 0n };

function charge(place: Place, nano: bigint): void {
  place.charged += nano;
  place.count += 1n;
  if (place.unspent !== null) place.unspent -= nano;
  if (place.free !== null) place.free -= nano;
}

function placesOf({ tables }: ModelContext, transaction: Transaction, batch: BatchRows): Place[] {
  return (batch.account_ids ?? []).map((id) => {
    const account = tables.accounts.read(transaction, id);
    const row = account?.key_id ? tables.apiKeys.read(transaction, account.key_id) : undefined;
    const key = row?.deleted_at === null ? row : undefined;
    const budget =
      batch.subjects === true && account?.budget_id
        ? tables.subjectBudgets.read(transaction, account.budget_id)
        : undefined;
    const limit =
      account?.kind === "subject_day"
        ? (budget?.daily_budget_nano ?? null)
        : account?.kind === "subject_month"
          ? (budget?.monthly_budget_nano ?? null)
          : account?.kind === "day"
            ? (key?.daily_budget_nano ?? null)
            : account?.kind === "month"
              ? (key?.monthly_budget_nano ?? null)
              : account?.kind === "org"
                ? withCredit(account.credit_nano, account.credit_limit_nano)
                : 0n;
    const unspent = limit === null ? null : limit - (account?.posted_nano ?? 0n);
    return {
      id,
      kind: account?.kind,
      limit,
      balance: (account?.credit_nano ?? 0n) - (account?.posted_nano ?? 0n),
      sequence: account?.kind === "org" ? account.sequence : account && 0n,
      isActive: key?.is_active ?? null,
      unspent,
      free: unspent === null ? null : unspent - (account?.held_nano ?? 0n),
      charged: 0n,
      moved: 0n,
      count: 0n,
      isBlocked: false,
    };
  });
}

function* decideHolds(
  { tables, guards }: ModelContext,
  transaction: Transaction,
  batch: BatchRows,
  places: readonly Place[],
): Running<{ granted: Granted[]; verdicts: VerdictRow[] }> {
  const granted: Granted[] = [];
  const verdicts: VerdictRow[] = [];
  for (const row of batch.holds ?? []) {
    const of = placesOfRow(places, row);
    let before = NOTHING;
    if (row.extends === true) {
      const hold = tables.holds.read(transaction, row.request_id);
      const isOurs =
        hold?.instance_id === batch.instance &&
        hold.epoch === BigInt(batch.epoch) &&
        isOf(hold, of);
      if (!isOurs) {
        verdicts.push({ request_id: row.request_id, gone: true });
        continue;
      }
      before = amountsOf(hold.hold_nano, hold.budget_nano);
      const { full, budget } = demandOf(row);
      if (before.nano >= full && before.budget >= budget.full) continue;
    }
    const { amounts, verdict } = decide(row, of, before, guards.limitInHold);
    if (verdict !== undefined) verdicts.push({ request_id: row.request_id, ...verdict });
    if (amounts === undefined) continue;
    if (row.extends !== true) granted.push({ row, ...amounts });
    else {
      yield* tables.holds.update(transaction, row.request_id, (hold) => ({
        ...hold,
        hold_nano: amounts.nano,
        budget_nano: row.budget_full_nano === undefined ? null : amounts.budget,
      }));
    }
    const more = { nano: amounts.nano - before.nano, budget: amounts.budget - before.budget };
    for (const [place, nano] of shares(of, more)) {
      place.moved += nano;
      if (place.free !== null) place.free -= nano;
    }
  }
  return { granted, verdicts };
}

interface Demand {
  readonly full: bigint;
  readonly least: bigint;
  readonly budget: { readonly full: bigint; readonly least: bigint };
}

function demandOf(row: DemandRow): Demand {
  const [full, least] = [BigInt(row.full_nano), BigInt(row.least_nano)];
  const { budget_full_nano: budgetFull, budget_least_nano: budgetLeast } = row;
  const budget = {
    full: budgetFull === undefined ? full : BigInt(budgetFull),
    least: budgetLeast === undefined ? least : BigInt(budgetLeast),
  };
  return { full, least, budget };
}

/** What the tightest of the limits leaves, with what the request has already. */
function available(before: bigint, ...free: (bigint | null)[]): bigint {
  const limits = free.filter((nano) => nano !== null);
  if (limits.length === 0) return MAX_BIGINT;
  return limits.reduce((one, other) => least(one, other)) + before;
}

function least(one: bigint, other: bigint): bigint {
  return one < other ? one : other;
}

function decide(
  row: DemandRow,
  [o, d, m, ...subjects]: PlacesOfRow,
  before: Amounts,
  isLimited: boolean,
): { amounts?: Amounts; verdict?: Record<string, unknown> } {
  const demand = demandOf(row);
  const ofBalance = available(before.nano, o.free);
  const ofBudget = available(before.budget, d.free, m.free, ...subjects.map(({ free }) => free));
  if (d.isActive !== true) return { verdict: { is_active: d.isActive } };
  const isBehind = (o.isBlocked && demand.full > 0n) || d.isBlocked;
  if (row.is_last !== true && (isBehind || subjects.some(({ isBlocked }) => isBlocked))) {
    return { verdict: { blocked: o.isBlocked || d.isBlocked ? "key" : "subject" } };
  }
  if ((demand.full <= ofBalance && demand.budget.full <= ofBudget) || !isLimited) {
    return { amounts: { nano: demand.full, budget: demand.budget.full } };
  }
  if (demand.least <= ofBalance && demand.budget.least <= ofBudget) {
    const amounts = loweredAmounts(row, demand, ofBalance, ofBudget);
    const { nano, budget } = amounts;
    return { amounts, verdict: { held_nano: String(nano), budget_nano: String(budget) } };
  }
  const isOnlyHeld =
    (o.unspent === null || demand.least <= o.unspent) &&
    [d, m, ...subjects].every(({ unspent }) => unspent === null || demand.budget.least <= unspent);
  const verdict = {
    is_active: true,
    organization: headroomOf(o),
    day: headroomOf(d),
    month: headroomOf(m),
    ...(subjects.length > 0 && { subjects: subjects.map(headroomOf) }),
  };
  if (row.is_last !== true && isOnlyHeld) {
    const isShort = (...of: Place[]) =>
      of.some(({ free }) => free !== null && demand.budget.least > free);
    if (o.free !== null && demand.least > o.free) o.isBlocked = true;
    else if (subjects.length === 0 || isShort(d, m)) d.isBlocked = true;
    else for (const one of subjects) if (isShort(one)) one.isBlocked = true;
  }
  return { verdict };
}

function loweredAmounts(
  row: DemandRow,
  { full, budget }: Demand,
  ofBalance: bigint,
  ofBudget: bigint,
): Amounts {
  if (row.budget_full_nano === undefined) {
    const free = least(ofBalance, ofBudget);
    return amountsOf(least(BigInt(row.most_nano ?? free), free), null);
  }
  return {
    nano: least(BigInt(row.most_nano ?? full), ofBalance),
    budget: least(BigInt(row.budget_most_nano ?? budget.full), ofBudget),
  };
}

const MAX_BIGINT = 2n ** 63n - 1n;

/** Null is without limit. */
function withCredit(creditNano: bigint, limitNano: bigint | null): bigint | null {
  return limitNano === null ? null : creditNano + limitNano;
}

function* moveTotals(
  { tables }: ModelContext,
  transaction: Transaction,
  places: readonly Place[],
): Running<void> {
  for (const { id, charged, moved, count } of places) {
    if (count === 0n && moved === 0n) continue;
    const moving = yield* tables.accounts.update(transaction, id, (before) => ({
      ...before,
      posted_nano: before.posted_nano + charged,
      held_nano: before.held_nano + moved,
      sequence: before.sequence + (before.kind === "org" ? count : 0n),
    }));
    if (moving === undefined && count > 0n) throw withoutAccount();
  }
}

function* postAll(
  context: ModelContext,
  transaction: Transaction,
  places: readonly Place[],
  charges: readonly Charge[],
): Running<void> {
  const behind = new Map<number, { sequence: bigint; balanceAfterNano: bigint }>();
  for (const charge of charges) {
    const place = places[charge.account - 1]!;
    if (place.sequence === undefined) throw withoutAccount();
    const before = behind.get(charge.account) ?? {
      sequence: place.sequence,
      balanceAfterNano: place.balance,
    };
    const at = {
      sequence: before.sequence + 1n,
      balanceAfterNano: before.balanceAfterNano - charge.chargeNano,
    };
    behind.set(charge.account, at);
    yield* postUsage(context, transaction, charge, at);
  }
}

function headroomOf({ limit, unspent, free }: Place): HeadroomRow {
  const text = (nano: bigint | null): string | null => (nano === null ? null : String(nano));
  return [text(limit), text(unspent), text(free)];
}

function beyondHold(): ModelledError {
  return new ModelledError(BEYOND_HOLD, "a charge is larger than its hold");
}

function withoutAccount(): ModelledError {
  return new ModelledError(NOT_NULL_VIOLATION, "a charge without its account");
}
