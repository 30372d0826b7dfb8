import { KIND_NAMES, type TransactionKind } from "../../src/lib/transaction-kinds.ts";
import { type Database, inOneSnapshot } from "../client.ts";

/** Transactions of one kind in one month. */
export interface MonthSum {
  /** The first day of the UTC month: YYYY-MM-01. */
  readonly month: string;
  readonly kind: TransactionKind;
  readonly transactions: bigint;
  /** Signed, as in transactions. */
  readonly amountNano: bigint;
  /** Part of the charges that is the plan's fee, as a positive number. */
  readonly feeNano: bigint;
}

/** The charges of one model in one month. The amount is signed, and contains the fee. */
export interface ModelSum extends Omit<MonthSum, "month" | "kind"> {
  /** Empty for charges without a model. */
  readonly model: string;
}

export interface MonthSums {
  readonly organization: { readonly name: string; readonly createdAtMs: number };
  readonly sums: readonly MonthSum[];
  /** Sums of the models of the month in question, the largest first. */
  readonly models: readonly ModelSum[];
  /** The time of the database. */
  readonly nowMs: number;
}

/**
 * Adds the organization's next transactions, at most `most`, to its statements. Returns true if there may be more. Any
 * number of callers may do so at the same time: each transaction is added once.
 */
export async function rollUpStatements(
  sql: Database,
  organizationId: string,
  most: number,
): Promise<boolean> {
  const [row] = await sql<{ has_more: boolean }[]>`
    SELECT statement_roll_up(${organizationId}, ${most}::integer) AS has_more`;
  return row!.has_more;
}

/** Returns organizations with transactions that their statements do not include yet. */
export async function organizationsWithoutStatements(
  sql: Database,
  atMost: number,
): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    SELECT o.id FROM organizations o LEFT JOIN statement_cursors c ON c.organization_id = o.id
    WHERE coalesce(c.sequence, 0)
      < (SELECT coalesce(max(t.sequence), 0) FROM transactions t WHERE t.organization_id = o.id)
    LIMIT ${atMost}`;
  return rows.map(({ id }) => id);
}

/**
 * Returns the sums of all months, and those of the models of `month`. Returns undefined if the organization does not
 * exist.
 *
 * @param month the first day of a month. Undefined: no models are needed
 */
export function readMonthSums(
  sql: Database,
  organizationId: string,
  month?: string,
): Promise<MonthSums | undefined> {
  return inOneSnapshot(sql, async (snapshot) => {
    const [organization] = await snapshot<{ name: string; created_at: Date; now: Date }[]>`
      SELECT name, created_at, clock_timestamp() AS now FROM organizations WHERE id = ${organizationId}`;
    if (organization === undefined) return undefined;
    const sums = await snapshot<(SumRow & { month: string; kind: TransactionKind })[]>`
      SELECT month::text, kind, transactions, amount_nano, fee_nano FROM statement_sums
      WHERE organization_id = ${organizationId} AND kind = ANY (${[...KIND_NAMES]}::text[])
      ORDER BY month`;
    const models =
      month === undefined
        ? []
        : await snapshot<(SumRow & { model: string })[]>`
            SELECT model, transactions, amount_nano, fee_nano FROM statement_sums
            WHERE organization_id = ${organizationId} AND kind = 'model' AND month = ${month}::date
            ORDER BY amount_nano, model`;
    return {
      organization: { name: organization.name, createdAtMs: organization.created_at.getTime() },
      sums: sums.map((row) => ({ month: row.month, kind: row.kind, ...sumOf(row) })),
      models: models.map((row) => ({ model: row.model, ...sumOf(row) })),
      nowMs: organization.now.getTime(),
    };
  });
}

interface SumRow {
  readonly transactions: bigint;
  readonly amount_nano: bigint;
  readonly fee_nano: bigint;
}

function sumOf({ transactions, amount_nano: amountNano, fee_nano: feeNano }: SumRow) {
  return { transactions, amountNano, feeNano };
}
