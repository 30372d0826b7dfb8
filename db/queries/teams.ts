import { type Database, type DatabaseTransaction, inOneSnapshot } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { teams } from "../schema/teams.ts";
import { recordChange } from "./changes.ts";
import { type SpendingPeriods, type SubjectLimits, setOwnerBudget } from "./subject-budgets.ts";

export type TeamRecord = RecordOf<typeof teams, "deletedAt" | "externalId">;
const recordOf = recordReader(teams, "deletedAt", "externalId");

/** Settings of a team without its budgets. */
export type TeamSettings = Omit<TeamRecord, "id" | "organizationId" | "createdAtMs">;

/** A team with its budgets and the amounts that its keys have spent in the current UTC day and month. */
export interface Team extends TeamRecord, SubjectLimits {
  readonly spentTodayNano: bigint;
  readonly spentThisMonthNano: bigint;
}

type TeamRow = RowOf<typeof teams> & {
  readonly daily_budget_nano: bigint | null;
  readonly monthly_budget_nano: bigint | null;
  readonly today_nano: bigint | null;
  readonly month_nano: bigint | null;
};

function teamOf(row: TeamRow): Team {
  return {
    ...recordOf(row),
    dailyBudgetNano: row.daily_budget_nano,
    monthlyBudgetNano: row.monthly_budget_nano,
    spentTodayNano: row.today_nano ?? 0n,
    spentThisMonthNano: row.month_nano ?? 0n,
  };
}

/** Thrown if an organization has its maximum number of teams. */
export class TooManyTeamsError extends Error {}

export const MAX_TEAMS = 10_000;

/**
 * Inserts a team with its budgets. Fails with 23505 if the organization has one of that name. Throws TooManyTeamsError
 * if the organization has the maximum number of teams.
 */
export async function insertTeam(
  sql: DatabaseTransaction,
  team: TeamRecord,
  limits: SubjectLimits & { readonly budgetId: string },
): Promise<void> {
  const { organizationId } = team;
  // One insertion at a time, so that their number is exact.
  await sql`SELECT 1 FROM organizations WHERE id = ${organizationId} FOR NO KEY UPDATE`;
  const [count] = await sql<{ count: bigint }[]>`
    SELECT count(*) AS count FROM teams
    WHERE organization_id = ${organizationId} AND deleted_at IS NULL`;
  if (count!.count >= MAX_TEAMS) throw new TooManyTeamsError();
  const { id, createdAtMs, organizationId: _, ...settings } = team;
  await sql`INSERT INTO teams ${sql({
    ...{ id, organization_id: organizationId, created_at: new Date(createdAtMs) },
    ...columnsOf(settings),
  })}`;
  // Every team has a row, so that its spending is counted from the beginning.
  await setOwnerBudget(sql, { organizationId, type: "team", id }, limits, createdAtMs);
}

const COLUMNS = {
  name: "name",
  rateLimitRpm: "rate_limit_rpm",
  rateLimitTpm: "rate_limit_tpm",
  allowedModels: "allowed_models",
  guardrail: "guardrail",
  preset: "preset",
  maxKeysPerMember: "max_keys_per_member",
  maxKeyDailyBudgetNano: "max_key_daily_budget_nano",
  maxKeyLifetimeDays: "max_key_lifetime_days",
} as const satisfies Record<keyof TeamSettings, string>;

function columnsOf(settings: Partial<TeamSettings>): Record<string, never> {
  const columns = Object.entries(settings).map(([name, value]) => [
    COLUMNS[name as keyof TeamSettings],
    typeof value === "bigint" ? value.toString() : value,
  ]);
  return Object.fromEntries(columns);
}

function selectTeams(sql: Database | DatabaseTransaction, periods: SpendingPeriods) {
  const { organizationId, day, monthStart } = periods;
  return sql`
    SELECT t.*, b.daily_budget_nano, b.monthly_budget_nano, d.posted_nano AS today_nano, m.posted_nano AS month_nano
    FROM teams t
    LEFT JOIN subject_budgets b ON b.organization_id = t.organization_id AND b.subject_type = 'team' AND b.subject_value = t.id
    LEFT JOIN accounts d ON d.id = 'subject_day:' || b.id || ':' || ${day}
    LEFT JOIN accounts m ON m.id = 'subject_month:' || b.id || ':' || ${monthStart}
    WHERE t.organization_id = ${organizationId} AND t.deleted_at IS NULL`;
}

/** Lists teams, newest first, with their total number. */
export function listTeams(
  sql: Database,
  periods: SpendingPeriods,
  { limit, offset }: { readonly limit: number; readonly offset: number },
): Promise<{ teams: Team[]; total: number }> {
  return inOneSnapshot(sql, async (snapshot) => {
    const [count] = await snapshot<{ total: bigint }[]>`
      SELECT count(*) AS total FROM teams
      WHERE organization_id = ${periods.organizationId} AND deleted_at IS NULL`;
    const rows = await snapshot<TeamRow[]>`
      ${selectTeams(snapshot, periods)} ORDER BY t.id DESC LIMIT ${limit} OFFSET ${offset}`;
    return { teams: rows.map(teamOf), total: Number(count!.total) };
  });
}

export async function findTeam(
  sql: Database | DatabaseTransaction,
  periods: SpendingPeriods,
  id: string,
): Promise<Team | undefined> {
  const [row] = await sql<TeamRow[]>`${selectTeams(sql, periods)} AND t.id = ${id}`;
  return row && teamOf(row);
}

/**
 * Changes the stated settings and budgets. Returns undefined if the team does not exist. Fails with 23505 if another
 * team has the name.
 */
export function changeTeam(
  sql: Database,
  periods: SpendingPeriods,
  id: string,
  changed: {
    readonly settings: Partial<TeamSettings>;
    readonly limits: Partial<SubjectLimits>;
    readonly newBudgetId: string;
    readonly nowMs: number;
  },
): Promise<Team | undefined> {
  const { organizationId } = periods;
  const { settings, limits, newBudgetId, nowMs } = changed;
  return sql.begin(async (transaction) => {
    // Two teams that take each other's names would wait for each other.
    if (settings.name !== undefined) {
      await transaction`SELECT pg_advisory_xact_lock(hashtextextended(${`team names ${organizationId}`}, 0))`;
    }
    const locked = await transaction`
      SELECT 1 FROM teams WHERE id = ${id} AND organization_id = ${organizationId}
        AND deleted_at IS NULL FOR UPDATE`;
    if (locked.count === 0) return undefined;
    if (Object.keys(settings).length > 0) {
      await transaction`UPDATE teams SET ${transaction(columnsOf(settings))} WHERE id = ${id}`;
    }
    if (Object.keys(limits).length > 0) {
      const owner = { organizationId, type: "team", id } as const;
      await setOwnerBudget(transaction, owner, { ...limits, budgetId: newBudgetId }, nowMs);
    }
    await recordChange(transaction, "key-owner", id);
    return findTeam(transaction, periods, id);
  });
}

/** Deletes a team without keys. Returns the number of its keys, or undefined if the team does not exist. */
export async function deleteTeam(
  sql: DatabaseTransaction,
  organizationId: string,
  id: string,
): Promise<number | undefined> {
  const locked = await sql`
    SELECT 1 FROM teams WHERE id = ${id} AND organization_id = ${organizationId}
      AND deleted_at IS NULL FOR UPDATE`;
  if (locked.count === 0) return undefined;
  const [keys] = await sql<{ count: bigint }[]>`
    SELECT count(*) AS count FROM api_keys WHERE team_id = ${id} AND deleted_at IS NULL`;
  if (keys!.count > 0n) return Number(keys!.count);
  await sql`DELETE FROM team_members WHERE team_id = ${id}`;
  await sql`UPDATE teams SET deleted_at = clock_timestamp() WHERE id = ${id}`;
  return 0;
}
