import type { Database, DatabaseTransaction } from "../client.ts";
import { orgAccountId } from "../ledger/rows.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { autoReplenish } from "../schema/auto-replenish.ts";
import { notifyChange } from "./changes.ts";
import { insertOutboxEvent, type OutboxEvent } from "./outbox.ts";

/*
 * Transactions lock in the order of the ledger, whose trigger holds an account when it makes a row due: the account
 * first. A transaction that has locked a row reads the balance afterwards, so that it sees every crossing that the row
 * records.
 */

export interface ReplenishSettings {
  readonly isEnabled: boolean;
  readonly thresholdNano: bigint;
  /** Nano-USD. 0: not set yet. */
  readonly amountNano: bigint;
  /** Null: the organization's default method. */
  readonly methodId: string | null;
}

export interface Replenishment extends ReplenishSettings {
  /** Number of consecutive declines. */
  readonly declines: number;
}

/**
 * After this number of consecutive declines nothing is ordered. The trigger order_replenishment has the same number.
 */
export const MAX_REPLENISH_DECLINES = 3;

const replenishmentOf = recordReader(
  autoReplenish,
  "organizationId",
  "crossings",
  "orderedCrossings",
  "intentId",
  "dueAt",
);

export async function findReplenishment(
  sql: Database,
  organizationId: string,
): Promise<Replenishment | undefined> {
  const [row] = await sql<RowOf<typeof autoReplenish>[]>`
    SELECT * FROM auto_replenish WHERE organization_id = ${organizationId}`;
  return row && replenishmentOf(row);
}

/**
 * Changes the settings, and orders a payment if the balance is below the threshold now. Resets the number of declines.
 *
 * @param decide returns the new settings from the earlier ones; may throw
 */
export function changeReplenishment(
  sql: Database,
  organizationId: string,
  decide: (before: ReplenishSettings) => ReplenishSettings,
): Promise<void> {
  return sql.begin(async (transaction) => {
    const balanceNano = await balanceOf(transaction, organizationId, true);
    await transaction`INSERT INTO auto_replenish (organization_id) VALUES (${organizationId})
      ON CONFLICT DO NOTHING`;
    const [row] = await transaction<RowOf<typeof autoReplenish>[]>`
      SELECT * FROM auto_replenish WHERE organization_id = ${organizationId} FOR UPDATE`;
    const { isEnabled, thresholdNano, amountNano, methodId } = decide(replenishmentOf(row!));
    const threshold = thresholdNano.toString();
    const isDue = isEnabled && balanceNano < thresholdNano;
    await transaction`UPDATE auto_replenish SET is_enabled = ${isEnabled},
        threshold_nano = ${threshold}::bigint, amount_nano = ${amountNano.toString()}::bigint,
        method_id = ${methodId}, declines = 0,
        due_at = CASE WHEN intent_id IS NOT NULL THEN due_at WHEN ${isDue} THEN clock_timestamp() END
      WHERE organization_id = ${organizationId}`;
    await transaction`UPDATE accounts
      SET replenish_below_nano = ${isEnabled ? threshold : null}::bigint
      WHERE id = ${orgAccountId(organizationId)}`;
    if (isDue) await notifyChange(transaction, "replenish", organizationId);
  });
}

/** A payment to make, or a payment whose outcome is not known. */
export interface ReplenishOrder {
  readonly organizationId: string;
  readonly intentId: string;
  readonly amountNano: bigint;
  readonly methodId: string | null;
}

/** How long an instance has for a claimed order. Then another instance may claim it. */
const LEASE_SECONDS = 60;
const SUSPENDED_SECONDS = 600;

/**
 * Claims the order that has been due longest: a payment of unknown outcome, or a new one, which is durable with this.
 * Returns "nothing" if a balance needs no payment after all, undefined if nothing is due.
 *
 * @param newIntentId id of the payment, if a new one is ordered
 */
export function claimReplenishment(
  sql: Database,
  newIntentId: string,
): Promise<ReplenishOrder | "nothing" | undefined> {
  return sql.begin(async (transaction) => {
    const [row] = await transaction<(RowOf<typeof autoReplenish> & { is_suspended: boolean })[]>`
      SELECT r.*, o.suspended_at IS NOT NULL AS is_suspended
      FROM auto_replenish r JOIN organizations o ON o.id = r.organization_id
      WHERE r.due_at <= clock_timestamp() ORDER BY r.due_at LIMIT 1 FOR UPDATE OF r SKIP LOCKED`;
    if (row === undefined) return undefined;
    const { organization_id: organizationId } = row;
    const order = { organizationId, amountNano: row.amount_nano, methodId: row.method_id };
    if (row.intent_id !== null) {
      await postpone(transaction, organizationId, LEASE_SECONDS);
      return { ...order, intentId: row.intent_id };
    }
    const isBelow = (await balanceOf(transaction, organizationId)) < row.threshold_nano;
    if (!row.is_enabled || !isBelow || row.declines >= MAX_REPLENISH_DECLINES) {
      await postpone(transaction, organizationId, null);
      return "nothing";
    }
    if (row.is_suspended) {
      await postpone(transaction, organizationId, SUSPENDED_SECONDS);
      return "nothing";
    }
    await transaction`UPDATE auto_replenish
      SET intent_id = ${newIntentId}, ordered_crossings = crossings
      WHERE organization_id = ${organizationId}`;
    await postpone(transaction, organizationId, LEASE_SECONDS);
    return { ...order, intentId: newIntentId };
  });
}

export type ReplenishOutcome =
  | { readonly kind: "paid" }
  | { readonly kind: "declined"; readonly reason: string }
  /** The payment failed for a reason other than the card. */
  | { readonly kind: "refused" }
  /** Outcome not known: it is looked up again. */
  | { readonly kind: "unknown" };

/** Content of the event about the last permitted decline. */
export interface ReplenishFailure extends ReplenishSettings {
  readonly organizationId: string;
  readonly balanceNano: bigint;
  readonly declines: number;
  readonly reason: string;
}

/**
 * If one payment does not lift the balance above the threshold, the next one follows after this time.
 */
const NEXT_PAYMENT_SECONDS = 60;
/** Delays after the first and after the second decline. */
const DECLINED_SECONDS = [600, 3_600];
const REFUSED_SECONDS = 300;
const UNKNOWN_SECONDS = 10;

/**
 * Records the outcome of a payment once. A second call for the same payment changes nothing. The third consecutive
 * decline is the last, and is reported.
 */
export function noteReplenished(
  sql: Database,
  { organizationId, intentId }: ReplenishOrder,
  outcome: ReplenishOutcome,
  report: (failure: ReplenishFailure) => OutboxEvent,
): Promise<void> {
  return sql.begin(async (transaction) => {
    const [row] = await transaction<RowOf<typeof autoReplenish>[]>`
      SELECT * FROM auto_replenish
      WHERE organization_id = ${organizationId} AND intent_id = ${intentId} FOR UPDATE`;
    if (row === undefined) return;
    if (outcome.kind === "unknown") {
      await postpone(transaction, organizationId, UNKNOWN_SECONDS);
      return;
    }
    const balanceNano = await balanceOf(transaction, organizationId);
    const declines = declinesAfter(row.declines, outcome);
    await transaction`UPDATE auto_replenish SET intent_id = NULL, declines = ${declines}
      WHERE organization_id = ${organizationId}`;
    const isWanted = row.is_enabled && balanceNano < row.threshold_nano;
    const pause = isWanted ? pauseAfter(row, outcome, declines) : null;
    await postpone(transaction, organizationId, pause);
    if (outcome.kind !== "declined" || declines < MAX_REPLENISH_DECLINES) return;
    const { reason } = outcome;
    const failure = { ...replenishmentOf(row), organizationId, balanceNano, declines, reason };
    await insertOutboxEvent(transaction, report(failure));
  });
}

function declinesAfter(before: number, { kind }: ReplenishOutcome): number {
  if (kind === "declined") return before + 1;
  return kind === "paid" ? 0 : before;
}

/** Returns the seconds until the next check of the balance. Null: at the next crossing. */
function pauseAfter(
  { crossings, ordered_crossings: ordered }: RowOf<typeof autoReplenish>,
  { kind }: ReplenishOutcome,
  declines: number,
): number | null {
  if (kind === "declined") return DECLINED_SECONDS[declines - 1] ?? null;
  if (kind === "refused") return REFUSED_SECONDS;
  return crossings > ordered ? 0 : NEXT_PAYMENT_SECONDS;
}

async function postpone(
  sql: DatabaseTransaction,
  organizationId: string,
  seconds: number | null,
): Promise<void> {
  await sql`UPDATE auto_replenish
    SET due_at = clock_timestamp() + make_interval(secs => ${seconds}::double precision)
    WHERE organization_id = ${organizationId}`;
}

async function balanceOf(
  sql: DatabaseTransaction,
  organizationId: string,
  isLocked = false,
): Promise<bigint> {
  const [row] = await sql<{ balance_nano: bigint }[]>`
    SELECT credit_nano - posted_nano AS balance_nano FROM accounts
    WHERE id = ${orgAccountId(organizationId)} ${isLocked ? sql`FOR UPDATE` : sql``}`;
  return row!.balance_nano;
}
