import type { Database } from "../../../db/client.ts";
import {
  type ModelSum,
  type MonthSum,
  readMonthSums,
  rollUpStatements,
} from "../../../db/queries/statements.ts";
import { overloaded } from "../../lib/errors.ts";
import {
  STATEMENT_COLUMNS,
  type StatementColumn,
  TRANSACTION_KINDS,
  type TransactionKind,
} from "../../lib/transaction-kinds.ts";
import { addUtcMonths } from "../../lib/utc-time.ts";

/** Amounts in nano-USD, signed as in transactions: the opening balance plus all columns is the closing balance. */
export interface StatementTotals extends Readonly<Record<StatementColumn, bigint>> {
  /** YYYY-MM, UTC. */
  readonly month: string;
  readonly opening: bigint;
  readonly closing: bigint;
  /** False while the figures can change. */
  readonly isFinal: boolean;
}

/** Transactions of one kind, without fees. */
export interface Movement {
  readonly kind: TransactionKind;
  readonly column: StatementColumn;
  readonly transactions: bigint;
  readonly amountNano: bigint;
}

export interface ModelCharges {
  /** Empty for charges without a model. Undefined for the sum of the models that are not listed. */
  readonly model: string | undefined;
  readonly transactions: bigint;
  readonly usageNano: bigint;
  readonly feesNano: bigint;
}

export interface Statement extends StatementTotals {
  /** The time of the database when the statement was read. */
  readonly readAtMs: number;
  readonly organization: { readonly id: string; readonly name: string };
  readonly movements: readonly Movement[];
  readonly models: readonly ModelCharges[];
}

/** Transactions of one step, which takes some ten milliseconds. */
const MOST_A_STEP = 10_000;
/** Steps of one read. Between two reads an organization adds less, because the background adds them too. */
const STEPS_A_READ = 4;
/** After the end of a month, so that its last transactions are committed. */
const FINAL_AFTER_MS = 600_000;
/** Models that a statement lists. The sum of all others is one more. */
export const MAX_MODELS = 200;
/** Months that the list shows: 50 years. */
const MAX_MONTHS = 600;

/** Returns the statements of all months since the organization was created, the newest first. */
export async function listStatements(
  sql: Database,
  organizationId: string,
): Promise<readonly StatementTotals[]> {
  await bringStatementsUpToDate(sql, organizationId);
  const read = await readMonthSums(sql, organizationId);
  if (read === undefined) return [];
  return totalsByMonth(read.sums, read.organization.createdAtMs, read.nowMs)
    .reverse()
    .slice(0, MAX_MONTHS);
}

/** Returns undefined if the organization has no statement of this month (YYYY-MM). */
export async function findStatement(
  sql: Database,
  organizationId: string,
  month: string,
): Promise<Statement | undefined> {
  if (!MONTH.test(month)) return undefined;
  await bringStatementsUpToDate(sql, organizationId);
  const firstDay = `${month}-01`;
  const read = await readMonthSums(sql, organizationId, firstDay);
  if (read === undefined) return undefined;
  const { organization, sums, models, nowMs } = read;
  const totals = totalsByMonth(sums, organization.createdAtMs, nowMs).find(
    (one) => one.month === month,
  );
  return (
    totals && {
      ...totals,
      readAtMs: nowMs,
      organization: { id: organizationId, name: organization.name },
      movements: sums
        .filter((sum) => sum.month === firstDay)
        .map(({ kind, transactions, amountNano, feeNano }) => ({
          kind,
          column: TRANSACTION_KINDS[kind].column,
          transactions,
          amountNano: amountNano + feeNano,
        })),
      models: listedModels(models),
    }
  );
}

/** Returns the first and the last day of a month (YYYY-MM). */
export function monthSpan(month: string): { readonly firstDay: string; readonly lastDay: string } {
  const firstDay = `${month}-01`;
  const lastMs = addUtcMonths(Date.parse(firstDay), 1) - 1;
  return { firstDay, lastDay: new Date(lastMs).toISOString().slice(0, 10) };
}

const MONTH = /^\d{4}-(0[1-9]|1[0-2])$/;

/**
 * Adds new transactions first, so that a following read includes all of them. Throws 503 while the transactions of
 * earlier versions are being added, because incomplete statements would be wrong.
 */
async function bringStatementsUpToDate(sql: Database, organizationId: string): Promise<void> {
  for (let step = 0; step < STEPS_A_READ; step++) {
    if (!(await rollUpStatements(sql, organizationId, MOST_A_STEP))) return;
  }
  throw overloaded("The statements are being computed. Try again in a minute.", RETRY_SECONDS);
}

const RETRY_SECONDS = 10;

/** Returns the totals of each month, from the first one to the current one, in order of time. */
function totalsByMonth(
  sums: readonly MonthSum[],
  createdAtMs: number,
  nowMs: number,
): StatementTotals[] {
  const created = firstDayOf(createdAtMs);
  const current = firstDayOf(nowMs);
  const first = sums[0]?.month ?? created;
  const last = sums.at(-1)?.month ?? current;
  const byMonth = Map.groupBy(sums, ({ month }) => month);
  const totals: StatementTotals[] = [];
  let opening = 0n;
  const end = last > current ? last : current;
  for (let day = first < created ? first : created; day <= end; ) {
    const endMs = addUtcMonths(Date.parse(day), 1);
    const columns = columnsOf(byMonth.get(day) ?? []);
    const closing = STATEMENT_COLUMNS.reduce(
      (balance, column) => balance + columns[column],
      opening,
    );
    const isFinal = nowMs >= endMs + FINAL_AFTER_MS;
    totals.push({ month: day.slice(0, 7), opening, ...columns, closing, isFinal });
    opening = closing;
    day = firstDayOf(endMs);
  }
  return totals;
}

function firstDayOf(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 7)}-01`;
}

function columnsOf(sums: readonly MonthSum[]): Record<StatementColumn, bigint> {
  const columns = { topups: 0n, usage: 0n, fees: 0n, adjustments: 0n, refunds: 0n };
  for (const { kind, amountNano, feeNano } of sums) {
    columns[TRANSACTION_KINDS[kind].column] += amountNano + feeNano;
    columns.fees -= feeNano;
  }
  return columns;
}

/** Returns the largest models, and the sum of the others. */
function listedModels(models: readonly ModelSum[]): ModelCharges[] {
  const listed = models.slice(0, MAX_MODELS).map((sum) => chargesOf(sum.model, sum));
  const rest = models.slice(MAX_MODELS);
  if (rest.length === 0) return listed;
  const sum = rest.reduce((all, one) => ({
    model: "",
    transactions: all.transactions + one.transactions,
    amountNano: all.amountNano + one.amountNano,
    feeNano: all.feeNano + one.feeNano,
  }));
  return [...listed, chargesOf(undefined, sum)];
}

function chargesOf(
  model: string | undefined,
  { transactions, amountNano, feeNano }: Omit<ModelSum, "model">,
): ModelCharges {
  return { model, transactions, usageNano: amountNano + feeNano, feesNano: -feeNano };
}

/** Returns the title of charges of a model. */
export function modelTitle({ model }: ModelCharges): string {
  if (model === undefined) return "Other models";
  return model === "" ? "No model" : model;
}
