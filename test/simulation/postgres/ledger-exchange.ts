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

type PlacesOfRow = readonly [organization: Place, day: Place, month: Place];

interface Granted {
  readonly row: DemandRow;
  readonly nano: bigint;
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
  for (const { row, nano } of granted) {
    const [organization, day, month] = placesOfRow(places, row);
    yield* tables.holds.insert(transaction, row.request_id, {
      id: row.request_id,
      instance_id: batch.instance,
      epoch: writer.epoch,
      org_account: organization.id,
      day_account: day.id,
      month_account: month.id,
      hold_nano: nano,
    });
  }
  yield* moveTotals(context, transaction, places);
  yield* keepCheckpoints(context, transaction, batch);
  if (batch.settlements !== undefined) {
    const due = charges.filter(({ requestId }) => !postedBefore.has(requestId));
    yield* postAll(context, transaction, places, due);
    const moved = places.filter(({ count }) => count > 0n).map(({ id }) => id);
    yield* emitBudgetEvents(context, transaction, moved, false);
  }
  for (const id of batch.attempts ?? []) yield* tables.attempts.delete(transaction, id);
  return verdicts;
}

function placesOfRow(
  places: readonly Place[],
  { accounts: [organization, day, month] }: Pick<DemandRow, "accounts">,
): PlacesOfRow {
  return [places[organization - 1]!, places[day - 1]!, places[month - 1]!];
}

/** Ends holds of the accounts that were locked. Returns what each came to. */
function* endHolds(
  { tables }: ModelContext,
  transaction: Transaction,
  batch: BatchRows,
  places: readonly Place[],
): Running<Map<number, bigint>> {
  const held = new Map<number, bigint>();
  for (const row of batch.ended ?? []) {
    const of = placesOfRow(places, row);
    const hold = tables.holds.read(transaction, row.request_id);
    if (hold === undefined || !isOf(hold, of)) continue;
    const ended = yield* tables.holds.delete(transaction, row.request_id);
    if (ended === undefined) continue;
    held.set(row.position, ended.hold_nano);
    for (const place of of) {
      place.moved -= ended.hold_nano;
      if (place.free !== null) place.free += ended.hold_nano;
    }
  }
  return held;
}

function isOf(hold: HoldRow, of: PlacesOfRow): boolean {
  const accounts = [hold.org_account, hold.day_account, hold.month_account];
  return accounts.every((id, index) => id === of[index]!.id);
}

interface Ended {
  readonly places: readonly Place[];
  readonly held: ReadonlyMap<number, bigint>;
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
    const nano = BigInt(chargeNano);
    const ofAttempt = batch.reaping === true ? heldInMemory(context, transaction, requestId) : 0n;
    if (nano > (held.get(position) ?? ofAttempt)) throw beyondHold();
    for (const place of placesOfRow(places, row)) {
      if (place.sequence === undefined) throw withoutAccount();
      charge(place, nano);
    }
  }
}

/** What a dead single-node gateway had held in its memory, as its attempt tells. */
function heldInMemory({ tables }: ModelContext, transaction: Transaction, id: string): bigint {
  const attempt = tables.attempts.read(transaction, id);
  const instance = attempt && tables.instances.read(transaction, attempt.instance_id);
  const isSingleNode = instance?.is_alone === true && instance.epoch === attempt!.epoch;
  return isSingleNode ? attempt!.hold_nano : 0n;
}

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
    const limit =
      account?.kind === "day"
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
    let before = 0n;
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
      before = hold.hold_nano;
      if (before >= BigInt(row.full_nano)) continue;
    }
    const { nano, verdict } = decide(row, of, before, guards.limitInHold);
    if (verdict !== undefined) verdicts.push({ request_id: row.request_id, ...verdict });
    if (nano === undefined) continue;
    if (row.extends !== true) granted.push({ row, nano });
    else {
      yield* tables.holds.update(transaction, row.request_id, (hold) => ({
        ...hold,
        hold_nano: nano,
      }));
    }
    for (const place of of) {
      place.moved += nano - before;
      if (place.free !== null) place.free -= nano - before;
    }
  }
  return { granted, verdicts };
}

function decide(
  row: DemandRow,
  [o, d, m]: PlacesOfRow,
  before: bigint,
  isLimited: boolean,
): { nano?: bigint; verdict?: Record<string, unknown> } {
  const full = BigInt(row.full_nano);
  const least = BigInt(row.least_nano);
  const free = [o.free, d.free, m.free].filter((nano) => nano !== null);
  const available =
    free.length === 0
      ? MAX_BIGINT
      : free.reduce((one, other) => (other < one ? other : one)) + before;
  if (d.isActive !== true) return { verdict: { is_active: d.isActive } };
  if (row.is_last !== true && (o.isBlocked || d.isBlocked)) return { verdict: { blocked: true } };
  if (full <= available || !isLimited) return { nano: full };
  if (least <= available) {
    const most = BigInt(row.most_nano ?? available);
    const nano = most < available ? most : available;
    return { nano, verdict: { held_nano: String(nano) } };
  }
  const isOnlyHeld = [o, d, m].every(({ unspent }) => unspent === null || least <= unspent);
  const verdict = {
    is_active: true,
    organization: headroomOf(o),
    day: headroomOf(d),
    month: headroomOf(m),
  };
  if (row.is_last !== true && isOnlyHeld) {
    if (o.free !== null && least > o.free) o.isBlocked = true;
    else d.isBlocked = true;
  }
  return { verdict };
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
  return new ModelledError(BEYOND_HOLD, "a charge goes beyond its hold");
}

function withoutAccount(): ModelledError {
  return new ModelledError(NOT_NULL_VIOLATION, "a charge without its account");
}
