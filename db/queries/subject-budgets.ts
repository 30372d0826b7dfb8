import { utcDay, utcMonth } from "../../src/lib/utc-time.ts";
import { type Database, type DatabaseTransaction, inOneSnapshot, type Query } from "../client.ts";
import { subjectDayAccountId, subjectMonthAccountId } from "../ledger/rows.ts";
import type { RecordOf, RowOf } from "../rows.ts";
import type { subjectBudgets } from "../schema/budgets.ts";
import { type LoadedPeriod, loadedPeriods, type PeriodRow } from "./api-keys.ts";
import { recordChange } from "./changes.ts";

type BudgetRow = RowOf<typeof subjectBudgets>;
export type SubjectType = BudgetRow["subject_type"];

/** The types of subjects that requests name. Teams and members own the key of the request instead. */
const NAMED_TYPES: readonly SubjectType[] = ["user", "tag"];

/** An end user or a tag of an organization's requests, or a team or a member with keys. */
export interface Subject {
  readonly type: SubjectType;
  readonly value: string;
}

export type SubjectLimits = Pick<
  RecordOf<typeof subjectBudgets>,
  "dailyBudgetNano" | "monthlyBudgetNano"
>;

export interface SubjectBudget extends SubjectLimits {
  readonly id: string;
  readonly subject: Subject;
  readonly createdAtMs: number;
  readonly spentTodayNano: bigint;
  readonly spentThisMonthNano: bigint;
}

interface SpentRow extends BudgetRow {
  readonly today_nano: bigint | null;
  readonly month_nano: bigint | null;
}

/** Returns the types of an organization's subjects that have budgets. */
export function budgetedTypes(organizationId: string): Query<ReadonlySet<SubjectType>> {
  return {
    name: "subject-budget-types",
    tables: ["subject_budgets"],
    async run(sql) {
      const rows = await sql<{ type: SubjectType }[]>`
        SELECT type FROM (VALUES ('user'), ('tag')) AS t (type) WHERE EXISTS (
          SELECT 1 FROM subject_budgets
          WHERE organization_id = ${organizationId} AND subject_type = type)`;
      return new Set(rows.map(({ type }) => type));
    },
  };
}

/**
 * Returns the ids of the budgets of these subjects, in their order. Undefined for a subject without one.
 */
export function budgetIdsOf(
  organizationId: string,
  subjects: readonly Subject[],
): Query<(string | undefined)[]> {
  return {
    name: "subject-budget-ids",
    tables: ["subject_budgets"],
    async run(sql) {
      const rows = await sql<{ id: string | null }[]>`
        SELECT b.id FROM ROWS FROM (
          jsonb_to_recordset(${JSON.stringify(subjects)}::text::jsonb) AS (type text, value text)
        ) WITH ORDINALITY AS s (type, value, place)
        LEFT JOIN subject_budgets b ON b.organization_id = ${organizationId}
          AND b.subject_type = s.type AND b.subject_value = s.value
        ORDER BY s.place`;
      return rows.map(({ id }) => id ?? undefined);
    },
  };
}

/**
 * Loads the limits of a budget and the totals of these accounts. Limits are undefined if it was deleted.
 */
export function loadSubjectBudget(
  id: string,
  accountIds: readonly string[],
): Query<{
  readonly limits: SubjectLimits | undefined;
  readonly totals: ReadonlyMap<string, LoadedPeriod>;
}> {
  return {
    name: "subject-budget-load",
    tables: ["subject_budgets", "accounts"],
    async run(sql) {
      const rows = await sql<(Partial<BudgetRow> & PeriodRow)[]>`
        SELECT b.*, a.id AS account_id, a.posted_nano, a.held_nano, a.sequence
        FROM (VALUES (${id})) AS wanted (id) LEFT JOIN subject_budgets b ON b.id = wanted.id
        LEFT JOIN accounts a ON a.id IN ${sql([...accountIds])}`;
      const [row] = rows;
      const limits = row?.id == null ? undefined : limitsOf(row as BudgetRow);
      return { limits, totals: loadedPeriods(rows) };
    },
  };
}

function limitsOf(row: BudgetRow): SubjectLimits {
  return {
    dailyBudgetNano: row.daily_budget_nano,
    monthlyBudgetNano: row.monthly_budget_nano,
  };
}

function budgetOf(row: SpentRow): SubjectBudget {
  return {
    id: row.id,
    subject: { type: row.subject_type, value: row.subject_value },
    ...limitsOf(row),
    createdAtMs: row.created_at.getTime(),
    spentTodayNano: row.today_nano ?? 0n,
    spentThisMonthNano: row.month_nano ?? 0n,
  };
}

/** Thrown if an organization has its maximum number of budgets. */
export class TooManySubjectBudgetsError extends Error {}

export const MAX_SUBJECT_BUDGETS = 100_000;

/**
 * Inserts a budget. Fails with 23505 if the subject has one. Throws TooManySubjectBudgetsError if the organization has
 * the maximum number of budgets.
 */
export function insertSubjectBudget(
  sql: Database,
  organizationId: string,
  budget: SubjectLimits & Pick<SubjectBudget, "id" | "subject" | "createdAtMs">,
  maxBudgets = MAX_SUBJECT_BUDGETS,
): Promise<void> {
  return sql.begin(async (transaction) => {
    // One insertion at a time, so that their number is exact.
    await transaction`SELECT 1 FROM organizations WHERE id = ${organizationId} FOR NO KEY UPDATE`;
    const [count] = await transaction<{ count: bigint }[]>`
      SELECT count(*) AS count FROM subject_budgets WHERE organization_id = ${organizationId}`;
    if (count!.count >= maxBudgets) throw new TooManySubjectBudgetsError();
    await transaction`INSERT INTO subject_budgets ${transaction({
      id: budget.id,
      organization_id: organizationId,
      subject_type: budget.subject.type,
      subject_value: budget.subject.value,
      daily_budget_nano: nanoText(budget.dailyBudgetNano),
      monthly_budget_nano: nanoText(budget.monthlyBudgetNano),
      created_at: new Date(budget.createdAtMs),
    })}`;
    await recordChange(transaction, "budget-subjects", organizationId);
  });
}

/**
 * Sets the stated limits of a team or a member. A new budget counts spending from now on; `budgetId` is its id. Reached
 * thresholds are reported.
 */
export async function setOwnerBudget(
  sql: DatabaseTransaction,
  owner: { readonly organizationId: string; readonly type: "team" | "member"; readonly id: string },
  { budgetId, ...limits }: Partial<SubjectLimits> & { readonly budgetId: string },
  nowMs: number,
): Promise<void> {
  const { dailyBudgetNano: daily, monthlyBudgetNano: monthly } = limits;
  const [budget] = await sql<{ id: string }[]>`
    INSERT INTO subject_budgets AS b (id, organization_id, subject_type, subject_value, daily_budget_nano,
      monthly_budget_nano, created_at)
    VALUES (${budgetId}, ${owner.organizationId}, ${owner.type}, ${owner.id}, ${nanoText(daily ?? null)}::bigint,
      ${nanoText(monthly ?? null)}::bigint, ${new Date(nowMs).toISOString()}::text::timestamptz)
    ON CONFLICT (organization_id, subject_type, subject_value) DO UPDATE SET
      daily_budget_nano = CASE WHEN ${daily !== undefined}::boolean
        THEN excluded.daily_budget_nano ELSE b.daily_budget_nano END,
      monthly_budget_nano = CASE WHEN ${monthly !== undefined}::boolean
        THEN excluded.monthly_budget_nano ELSE b.monthly_budget_nano END
    RETURNING id`;
  const { id } = budget!;
  const accounts = [
    subjectDayAccountId(id, utcDay(nowMs).start),
    subjectMonthAccountId(id, utcMonth(nowMs).start),
  ];
  await sql`SELECT 1 FROM accounts WHERE id IN ${sql(accounts)} ORDER BY id FOR UPDATE`;
  await sql`SELECT emit_budget_events(${sql.array(accounts)}::text[], false)`;
  await recordChange(sql, "subject-budget", id);
  await recordChange(sql, "key-owner", owner.id);
}

function nanoText(nano: bigint | null): string | null {
  return nano === null ? null : nano.toString();
}

/** The organization, and the UTC day and month to read. */
export interface SpendingPeriods {
  readonly organizationId: string;
  /** First days, YYYY-MM-DD. */
  readonly day: string;
  readonly monthStart: string;
}

export interface BudgetPage {
  readonly type: SubjectType | undefined;
  readonly value: string | undefined;
  readonly limit: number;
  readonly offset: number;
}

/** Lists budgets, newest first, with their total number. */
export function listSubjectBudgets(
  sql: Database,
  { organizationId, day, monthStart }: SpendingPeriods,
  page: BudgetPage,
): Promise<{ budgets: SubjectBudget[]; total: number }> {
  const { type = null, value = null, limit, offset } = page;
  return inOneSnapshot(sql, async (snapshot) => {
    const chosen = snapshot`organization_id = ${organizationId}
      AND subject_type IN ${snapshot(NAMED_TYPES)}
      AND (${type}::text IS NULL OR subject_type = ${type})
      AND (${value}::text IS NULL OR subject_value = ${value})`;
    const [count] = await snapshot<{ total: bigint }[]>`
      SELECT count(*) AS total FROM subject_budgets WHERE ${chosen}`;
    const rows = await snapshot<SpentRow[]>`
      SELECT b.*, d.posted_nano AS today_nano, m.posted_nano AS month_nano
      FROM (SELECT * FROM subject_budgets WHERE ${chosen}
        ORDER BY id DESC LIMIT ${limit} OFFSET ${offset}) b
      LEFT JOIN accounts d ON d.id = 'subject_day:' || b.id || ':' || ${day}
      LEFT JOIN accounts m ON m.id = 'subject_month:' || b.id || ':' || ${monthStart}
      ORDER BY b.id DESC`;
    return { budgets: rows.map(budgetOf), total: Number(count!.total) };
  });
}

export async function findSubjectBudget(
  sql: Database | DatabaseTransaction,
  { organizationId, day, monthStart }: SpendingPeriods,
  id: string,
): Promise<SubjectBudget | undefined> {
  const [row] = await sql<SpentRow[]>`
    SELECT b.*, d.posted_nano AS today_nano, m.posted_nano AS month_nano
    FROM subject_budgets b
    LEFT JOIN accounts d ON d.id = ${subjectDayAccountId(id, day)}
    LEFT JOIN accounts m ON m.id = ${subjectMonthAccountId(id, monthStart)}
    WHERE b.id = ${id} AND b.organization_id = ${organizationId}
      AND b.subject_type IN ${sql(NAMED_TYPES)}`;
  return row && budgetOf(row);
}

/** Changes the members of `changed`. Returns undefined if the budget does not exist. */
export function changeSubjectBudget(
  sql: Database,
  periods: SpendingPeriods,
  id: string,
  changed: Partial<SubjectLimits>,
): Promise<SubjectBudget | undefined> {
  const { dailyBudgetNano: daily, monthlyBudgetNano: monthly } = changed;
  return sql.begin(async (transaction) => {
    const updated = await transaction`
      UPDATE subject_budgets SET
        daily_budget_nano = CASE WHEN ${daily !== undefined}::boolean
          THEN ${nanoText(daily ?? null)}::bigint ELSE daily_budget_nano END,
        monthly_budget_nano = CASE WHEN ${monthly !== undefined}::boolean
          THEN ${nanoText(monthly ?? null)}::bigint ELSE monthly_budget_nano END
      WHERE id = ${id} AND organization_id = ${periods.organizationId}
        AND subject_type IN ${transaction(NAMED_TYPES)}`;
    if (updated.count === 0) return undefined;
    await recordChange(transaction, "subject-budget", id);
    return findSubjectBudget(transaction, periods, id);
  });
}

/** Returns false if the budget does not exist. */
export function deleteSubjectBudget(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const deleted = await transaction`
      DELETE FROM subject_budgets WHERE id = ${id} AND organization_id = ${organizationId}
        AND subject_type IN ${transaction(NAMED_TYPES)}`;
    if (deleted.count === 0) return false;
    await recordChange(transaction, "budget-subjects", organizationId);
    await recordChange(transaction, "subject-budget", id);
    return true;
  });
}
