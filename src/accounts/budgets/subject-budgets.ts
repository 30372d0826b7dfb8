import { authored } from "../../../db/authored.ts";
import { type Database, sqlState } from "../../../db/client.ts";
import { UNIQUE_VIOLATION } from "../../../db/error-states.ts";
import {
  type BudgetPage,
  changeSubjectBudget,
  deleteSubjectBudget,
  findSubjectBudget,
  insertSubjectBudget,
  listSubjectBudgets,
  MAX_SUBJECT_BUDGETS,
  type SpendingPeriods,
  type Subject,
  type SubjectBudget,
  type SubjectLimits,
  TooManySubjectBudgetsError,
} from "../../../db/queries/subject-budgets.ts";
import type { BudgetSubjects } from "../../billing/ledger/budget-subjects.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { utcDay, utcMonth } from "../../lib/utc-time.ts";

interface SubjectBudgetsDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly budgetSubjects: BudgetSubjects;
  /** The actors of a single-node gateway. They decide by the budgets that they have loaded. */
  readonly world: { readonly subjectBudgets: { forget(id: string): void } };
}

/**
 * Budgets of an organization's end users and tags. Every method that takes an id throws 404 if the
 * budget belongs to another organization.
 */
export class SubjectBudgets {
  readonly #dependencies: SubjectBudgetsDependencies;

  constructor(dependencies: SubjectBudgetsDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Creates a budget. Throws 409 if the subject already has one, 403 if the organization has the
   * maximum number.
   */
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
      throw toGatewayError(error, subject);
    } finally {
      // Other instances are notified by the change feed.
      budgetSubjects.forget(organizationId);
    }
    return { ...budget, spentTodayNano: 0n, spentThisMonthNano: 0n };
  }

  list(
    organizationId: string,
    page: BudgetPage,
  ): Promise<{ budgets: SubjectBudget[]; total: number }> {
    return listSubjectBudgets(this.#dependencies.sql, this.#periods(organizationId), page);
  }

  async find(organizationId: string, id: string): Promise<SubjectBudget> {
    const { sql } = this.#dependencies;
    return assertFound(await findSubjectBudget(sql, this.#periods(organizationId), id));
  }

  /**
   * Changes the limits. Running requests keep their holds, even if a budget is lowered below their
   * sum.
   */
  async change(
    organizationId: string,
    id: string,
    changed: Partial<SubjectLimits>,
    author: Author,
  ): Promise<SubjectBudget> {
    const { sql, world } = this.#dependencies;
    try {
      const periods = this.#periods(organizationId);
      return assertFound(await changeSubjectBudget(authored(sql, author), periods, id, changed));
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

  #periods(organizationId: string): SpendingPeriods {
    const nowMs = this.#dependencies.clock.nowMs();
    return { organizationId, day: utcDay(nowMs).start, monthStart: utcMonth(nowMs).start };
  }
}

function assertFound(budget: SubjectBudget | undefined): SubjectBudget {
  if (budget === undefined) throw notFound();
  return budget;
}

function notFound(): GatewayError {
  return new GatewayError("budget_not_found", "There is no such budget.");
}

function toGatewayError(error: unknown, { type }: Subject): unknown {
  if (error instanceof TooManySubjectBudgetsError) {
    const message = `An organization can have at most ${MAX_SUBJECT_BUDGETS} budgets of users and tags.`;
    return new GatewayError("quota_exceeded", message, { cause: error });
  }
  if (sqlState(error) !== UNIQUE_VIOLATION) return error;
  const message = `The ${type} already has a budget.`;
  return new GatewayError("name_taken", message, { param: "subject", cause: error });
}
