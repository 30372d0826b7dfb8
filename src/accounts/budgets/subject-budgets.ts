import { authored } from "../../../db/authored.ts";
import { type Database, sqlState } from "../../../db/client.ts";
import {
  type BudgetPage,
  changeSubjectBudget,
  deleteSubjectBudget,
  findSubjectBudget,
  insertSubjectBudget,
  listSubjectBudgets,
  MAX_SUBJECT_BUDGETS,
  type SpendingPlace,
  type Subject,
  type SubjectBudget,
  type SubjectLimits,
  TooManySubjectBudgetsError,
} from "../../../db/queries/subject-budgets.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { utcDay, utcMonth } from "../../lib/utc-time.ts";
import type { BudgetSubjects } from "../../billing/ledger/budget-subjects.ts";

interface SubjectBudgetsDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly budgetSubjects: BudgetSubjects;
  /** The actors of a single-node gateway, which decide by what they know. */
  readonly world: { readonly subjectBudgets: { forget(id: string): void } };
}

const UNIQUE_VIOLATION = "23505";

/** Budgets of an organization's end users and tags. Every method throws 404 for another's. */
export class SubjectBudgets {
  readonly #dependencies: SubjectBudgetsDependencies;

  constructor(dependencies: SubjectBudgetsDependencies) {
    this.#dependencies = dependencies;
  }

  /** Throws 409 where the subject has one, 403 where there are too many. */
  async create(
    organizationId: string,
    subject: Subject,
    limits: SubjectLimits,
    author: Author,
  ): Promise<SubjectBudget> {
    const { sql, clock, budgetSubjects } = this.#dependencies;
    const budget = { id: newId("bud"), subject, ...limits, createdAtMs: clock.nowMs() };
    try {
      await insertSubjectBudget(authored(sql, author), organizationId, budget);
    } catch (error) {
      throw asRefusal(error, subject);
    } finally {
      // Others learn of it from the change feed.
      budgetSubjects.forget(organizationId);
    }
    return { ...budget, spentTodayNano: 0n, spentThisMonthNano: 0n };
  }

  list(
    organizationId: string,
    page: BudgetPage,
  ): Promise<{ budgets: SubjectBudget[]; total: number }> {
    return listSubjectBudgets(this.#dependencies.sql, this.#placeIn(organizationId), page);
  }

  async find(organizationId: string, id: string): Promise<SubjectBudget> {
    const { sql } = this.#dependencies;
    return found(await findSubjectBudget(sql, this.#placeIn(organizationId), id));
  }

  /** Requests that are running keep what they hold, also where a budget is lowered below it. */
  async change(
    organizationId: string,
    id: string,
    changed: Partial<SubjectLimits>,
    author: Author,
  ): Promise<SubjectBudget> {
    const { sql, world } = this.#dependencies;
    try {
      const place = this.#placeIn(organizationId);
      return found(await changeSubjectBudget(authored(sql, author), place, id, changed));
    } finally {
      world.subjectBudgets.forget(id);
    }
  }

  async remove(organizationId: string, id: string, author: Author): Promise<void> {
    const { sql, world, budgetSubjects } = this.#dependencies;
    try {
      const isDeleted = await deleteSubjectBudget(authored(sql, author), organizationId, id);
      if (!isDeleted) throw notFound();
    } finally {
      budgetSubjects.forget(organizationId);
      world.subjectBudgets.forget(id);
    }
  }

  #placeIn(organizationId: string): SpendingPlace {
    const nowMs = this.#dependencies.clock.nowMs();
    return { organizationId, day: utcDay(nowMs).start, monthStart: utcMonth(nowMs).start };
  }
}

function found(budget: SubjectBudget | undefined): SubjectBudget {
  if (budget === undefined) throw notFound();
  return budget;
}

function notFound(): GatewayError {
  return new GatewayError("budget_not_found", "There is no such budget.");
}

function asRefusal(error: unknown, { type }: Subject): unknown {
  if (error instanceof TooManySubjectBudgetsError) {
    const message = `An organization can have at most ${MAX_SUBJECT_BUDGETS} budgets of users and tags.`;
    return new GatewayError("quota_exceeded", message, { cause: error });
  }
  if (sqlState(error) !== UNIQUE_VIOLATION) return error;
  const message = `The ${type} has a budget already.`;
  return new GatewayError("name_taken", message, { param: "subject", cause: error });
}
