import { authored } from "../../../db/authored.ts";
import { type Database, sqlState } from "../../../db/client.ts";
import { UNIQUE_VIOLATION } from "../../../db/error-states.ts";
import type { SpendingPeriods, SubjectLimits } from "../../../db/queries/subject-budgets.ts";
import {
  changeTeam,
  deleteTeam,
  findTeam,
  insertTeam,
  listTeams,
  MAX_TEAMS,
  type Team,
  type TeamSettings,
  TooManyTeamsError,
} from "../../../db/queries/teams.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { utcDay, utcMonth } from "../../lib/utc-time.ts";

interface TeamsDependencies {
  readonly sql: Database;
  readonly clock: Clock;
}

/** The settings of a team for which nothing is stated, without its name. */
export const INITIAL_TEAM: Omit<TeamSettings, "name"> = {
  rateLimitRpm: null,
  rateLimitTpm: null,
  allowedModels: null,
  guardrail: null,
  preset: null,
  maxKeysPerMember: null,
  maxKeyDailyBudgetNano: null,
  maxKeyLifetimeDays: null,
};

/**
 * The teams of organizations (contract §14). The change feed makes every instance load the keys of a changed team again,
 * within a second.
 */
export class Teams {
  readonly #dependencies: TeamsDependencies;

  constructor(dependencies: TeamsDependencies) {
    this.#dependencies = dependencies;
  }

  /** Creates a team. Throws 409 if the name is taken, and 403 if the organization has the maximum number of teams. */
  async create(
    organizationId: string,
    settings: Partial<TeamSettings> & Pick<TeamSettings, "name">,
    limits: Partial<SubjectLimits>,
    author: Author,
  ): Promise<Team> {
    const { sql, clock } = this.#dependencies;
    const createdAtMs = clock.nowMs();
    const team = { id: newId("team"), organizationId, createdAtMs, ...INITIAL_TEAM, ...settings };
    const budget = { dailyBudgetNano: null, monthlyBudgetNano: null, ...limits };
    try {
      await authored(sql, author).begin((transaction) =>
        insertTeam(transaction, team, { ...budget, budgetId: newId("bud") }),
      );
    } catch (error) {
      throw toGatewayError(error);
    }
    return { ...team, ...budget, spentTodayNano: 0n, spentThisMonthNano: 0n };
  }

  list(
    organizationId: string,
    page: { readonly limit: number; readonly offset: number },
  ): Promise<{ teams: Team[]; total: number }> {
    return listTeams(this.#dependencies.sql, this.#periods(organizationId), page);
  }

  async find(organizationId: string, id: string): Promise<Team> {
    return assertFound(await findTeam(this.#dependencies.sql, this.#periods(organizationId), id));
  }

  /** Changes settings and budgets. Running requests keep their holds. Throws 404 and, if the name is taken, 409. */
  async change(
    organizationId: string,
    id: string,
    changed: {
      readonly settings: Partial<TeamSettings>;
      readonly limits: Partial<SubjectLimits>;
    },
    author: Author,
  ): Promise<Team> {
    const { sql, clock } = this.#dependencies;
    const more = { newBudgetId: newId("bud"), nowMs: clock.nowMs() };
    try {
      const periods = this.#periods(organizationId);
      return assertFound(
        await changeTeam(authored(sql, author), periods, id, { ...changed, ...more }),
      );
    } catch (error) {
      throw toGatewayError(error);
    }
  }

  /** Deletes a team. Throws 404, and 409 in_use if it has keys. */
  async remove(organizationId: string, id: string, author: Author): Promise<void> {
    const keys = await authored(this.#dependencies.sql, author).begin((transaction) =>
      deleteTeam(transaction, organizationId, id),
    );
    if (keys === undefined) throw notFound();
    if (keys > 0) {
      const message = `The team has ${keys} API ${keys === 1 ? "key" : "keys"}. Delete or move them first.`;
      throw new GatewayError("in_use", message);
    }
  }

  #periods(organizationId: string): SpendingPeriods {
    const nowMs = this.#dependencies.clock.nowMs();
    return { organizationId, day: utcDay(nowMs).start, monthStart: utcMonth(nowMs).start };
  }
}

function assertFound(team: Team | undefined): Team {
  if (team === undefined) throw notFound();
  return team;
}

function notFound(): GatewayError {
  return new GatewayError("team_not_found", "There is no such team.");
}

function toGatewayError(error: unknown): unknown {
  if (error instanceof TooManyTeamsError) {
    const message = `An organization can have at most ${MAX_TEAMS} teams.`;
    return new GatewayError("quota_exceeded", message, { cause: error });
  }
  if (sqlState(error) !== UNIQUE_VIOLATION) return error;
  const message = "The organization already has a team with this name.";
  return new GatewayError("name_taken", message, { param: "name", cause: error });
}
