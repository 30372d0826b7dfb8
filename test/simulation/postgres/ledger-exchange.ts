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

type RoomRow = [limit: string | null, unspent: string | null, free: string | null];
type VerdictRow = Record<string, unknown> & { readonly r: string };

interface Granted {
  readonly row: DemandRow;
  readonly nano: bigint;
}

/** As the function of that name: holds stand in the database. */
export function* ledgerExchange(
  context: ModelContext,
  transaction: Transaction,
  batch: BatchRows,
): Running<{ free: (string | null)[]; verdicts: VerdictRow[] }> {
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
  const decided = decideHolds(context, batch, places, postedBefore);
  for (const { row, nano } of decided.granted) {
    yield* tables.holds.insert(transaction, row.r, {
      id: row.r,
      instance_id: batch.instance,
      epoch: writer.epoch,
      org_account: places[row.o - 1]!.id,
      day_account: places[row.d - 1]!.id,
      month_account: places[row.m - 1]!.id,
      hold_nano: nano,
    });
  }
  yield* moveTotals(context, transaction, places);
  yield* keepCheckpoints(context, transaction, batch, decided.refused);
  if (batch.settlements !== undefined) {
    const due = charges.filter(({ requestId }) => !postedBefore.has(requestId));
    yield* postAll(context, transaction, places, due);
    const moved = places.filter(({ count }) => count > 0n).map(({ id }) => id);
    yield* emitBudgetEvents(context, transaction, moved, false);
  }
  if (batch.recheck === true) {
    for (const id of decided.refused) yield* tables.attempts.delete(transaction, id);
  }
  for (const id of batch.attempts ?? []) yield* tables.attempts.delete(transaction, id);
  return {
    free: places.map(({ free }) => (free === null ? null : String(free))),
    verdicts: decided.verdicts,
  };
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
    const of = [places[row.o - 1]!, places[row.d - 1]!, places[row.m - 1]!] as const;
    const hold = tables.holds.read(transaction, row.r);
    if (hold === undefined) continue;
    const accounts = [hold.org_account, hold.day_account, hold.month_account];
    if (accounts.some((id, index) => id !== of[index]!.id)) continue;
    const ended = yield* tables.holds.delete(transaction, row.r);
    if (ended === undefined) continue;
    held.set(row.n, ended.hold_nano);
    for (const place of of) {
      place.moved -= ended.hold_nano;
      if (place.free !== null) place.free += ended.hold_nano;
    }
  }
  return held;
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
    if (row.c === undefined || postedBefore.has(row.r)) continue;
    const nano = BigInt(row.c);
    const ofAttempt = batch.reaping === true ? heldInMemory(context, transaction, row.r) : 0n;
    if (nano > (held.get(row.n) ?? ofAttempt)) throw beyondHold();
    for (const at of [row.o, row.d, row.m]) charge(places[at - 1]!, nano);
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
      sequence: account?.kind === "org" ? account.sequence : undefined,
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

function decideHolds(
  { guards }: ModelContext,
  batch: BatchRows,
  places: readonly Place[],
  postedBefore: ReadonlySet<string>,
): { granted: Granted[]; refused: Set<string>; verdicts: VerdictRow[] } {
  const granted: Granted[] = [];
  const refused = new Set<string>();
  const verdicts: VerdictRow[] = [];
  for (const row of batch.holds ?? []) {
    if (postedBefore.has(row.r)) continue;
    const of = [places[row.o - 1]!, places[row.d - 1]!, places[row.m - 1]!] as const;
    const { nano, verdict } = decide(row, of, guards.limitInHold);
    if (verdict !== undefined) verdicts.push(verdict);
    if (nano === undefined) {
      refused.add(row.r);
      continue;
    }
    granted.push({ row, nano });
    for (const place of of) {
      place.moved += nano;
      if (place.free !== null) place.free -= nano;
    }
  }
  return { granted, refused, verdicts };
}

function decide(
  row: DemandRow,
  [o, d, m]: readonly [Place, Place, Place],
  isLimited: boolean,
): { nano?: bigint; verdict?: VerdictRow } {
  const full = BigInt(row.f);
  const least = BigInt(row.q);
  const free = [o.free, d.free, m.free].filter((nano) => nano !== null);
  const available = free.reduce((one, other) => (other < one ? other : one), MAX_BIGINT);
  if (d.isActive !== true) return { verdict: { r: row.r, a: d.isActive } };
  if (row.w !== "last" && (o.isBlocked || d.isBlocked)) return { verdict: { r: row.r, b: true } };
  if (full <= available || !isLimited) return { nano: full };
  if (least <= available) {
    const { nano, tokens } = lowered(row, available);
    return { nano, verdict: { r: row.r, h: String(nano), t: tokens } };
  }
  const isOnlyHeld = [o, d, m].every(({ unspent }) => unspent === null || least <= unspent);
  const verdict = { r: row.r, a: true, o: roomOf(o), d: roomOf(d), m: roomOf(m) };
  if (row.w === undefined && isOnlyHeld) {
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

const FEMTO_SCALE = 10_000_000_000n;

function lowered(row: DemandRow, available: bigint): { nano: bigint; tokens: number } {
  const rate = 10_000n + BigInt(row.fee!);
  const fixed = BigInt(row.fx!);
  const perToken = BigInt(row.pt!);
  const affordable = ((available * FEMTO_SCALE) / rate - fixed) / perToken;
  const tokens = affordable < BigInt(row.x!) ? affordable : BigInt(row.x!);
  const nano = ((fixed + perToken * tokens) * rate + FEMTO_SCALE - 1n) / FEMTO_SCALE;
  return { nano, tokens: Number(tokens) };
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
    if (moving === undefined && count > 0n) {
      throw new ModelledError(NOT_NULL_VIOLATION, "a charge without its account");
    }
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
    const place = places[charge.o - 1]!;
    if (place.sequence === undefined) {
      throw new ModelledError(NOT_NULL_VIOLATION, "a charge without its account");
    }
    const before = behind.get(charge.o) ?? {
      sequence: place.sequence,
      balanceAfterNano: place.balance,
    };
    const at = {
      sequence: before.sequence + 1n,
      balanceAfterNano: before.balanceAfterNano - charge.chargeNano,
    };
    behind.set(charge.o, at);
    yield* postUsage(context, transaction, charge, at);
  }
}

function roomOf({ limit, unspent, free }: Place): RoomRow {
  const text = (nano: bigint | null): string | null => (nano === null ? null : String(nano));
  return [text(limit), text(unspent), text(free)];
}

function beyondHold(): ModelledError {
  return new ModelledError(BEYOND_HOLD, "a charge goes beyond its hold");
}
