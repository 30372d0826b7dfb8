import type { Query } from "../../../db/client.ts";
import {
  budgetedTypes,
  budgetIdsOf,
  type Subject,
  type SubjectType,
} from "../../../db/queries/subject-budgets.ts";
import { OrganizationCache } from "../../lib/organization-cache.ts";
import { tagsOf } from "../../lib/request-tags.ts";
import type { BudgetSubject } from "./interface.ts";

/** Most organizations whose budgeted subject types are cached. */
const MAX_ORGANIZATIONS = 10_000;
/** Most cached subjects of all organizations, with or without a budget. */
const MAX_SUBJECTS = 20_000;

/** The fields of a request that name its end user and tags. */
export interface SubjectFields {
  readonly user?: string | null;
  readonly metadata?: Readonly<Record<string, unknown>> | null;
}

/**
 * The subject types of an organization that have budgets. Valid until one of its budgets is created or deleted.
 */
interface Budgeted {
  readonly types: ReadonlySet<SubjectType>;
}

interface CachedSubject {
  /** The entry is valid as long as this object is current. */
  readonly under: Budgeted;
  readonly budgetId: string | undefined;
}

/**
 * Caches which end users and tags have budgets, until the change feed reports a change of their organization's
 * budgets.
 */
export class BudgetSubjects {
  readonly #read: <Result>(query: Query<Result>) => Promise<Result>;
  readonly #organizations: OrganizationCache<Budgeted>;
  readonly #subjects = new Map<string, CachedSubject>();

  constructor(read: <Result>(query: Query<Result>) => Promise<Result>) {
    this.#read = read;
    this.#organizations = new OrganizationCache(MAX_ORGANIZATIONS, async (organizationId) => ({
      types: await read(budgetedTypes(organizationId)),
    }));
  }

  /**
   * Returns the subjects of a request that have budgets, or undefined if none has. Returns immediately if they
   * are cached.
   */
  of(
    organizationId: string,
    fields: SubjectFields,
  ): readonly BudgetSubject[] | undefined | Promise<readonly BudgetSubject[] | undefined> {
    if (!fields.user && !fields.metadata?.tags) return undefined;
    const budgeted = this.#organizations.of(organizationId);
    return budgeted instanceof Promise
      ? budgeted.then((loaded) => this.#within(organizationId, loaded, fields))
      : this.#within(organizationId, budgeted, fields);
  }

  forget(organizationId: string): void {
    this.#organizations.forget(organizationId);
  }

  forgetAll(): void {
    this.#organizations.forgetAll();
  }

  #within(organizationId: string, budgeted: Budgeted, fields: SubjectFields) {
    const subjects = subjectsOf(fields, budgeted.types);
    if (subjects.length === 0) return undefined;
    const cached = subjects.map((subject) => this.#subjects.get(nameOf(organizationId, subject)));
    if (cached.every((entry) => entry?.under === budgeted)) {
      return withBudgets(subjects, (at) => cached[at]!.budgetId);
    }
    return this.#look(organizationId, budgeted, subjects);
  }

  async #look(
    organizationId: string,
    budgeted: Budgeted,
    subjects: readonly Subject[],
  ): Promise<readonly BudgetSubject[] | undefined> {
    const ids = await this.#read(budgetIdsOf(organizationId, subjects));
    for (const [at, subject] of subjects.entries()) {
      const name = nameOf(organizationId, subject);
      this.#subjects.delete(name);
      this.#subjects.set(name, { under: budgeted, budgetId: ids[at] });
    }
    for (const oldest of this.#subjects.keys()) {
      if (this.#subjects.size <= MAX_SUBJECTS) break;
      this.#subjects.delete(oldest);
    }
    return withBudgets(subjects, (at) => ids[at]);
  }
}

function subjectsOf({ user, metadata }: SubjectFields, types: ReadonlySet<SubjectType>): Subject[] {
  const subjects: Subject[] = [];
  if (user && types.has("user")) subjects.push({ type: "user", value: user });
  if (types.has("tag")) for (const value of tagsOf(metadata)) subjects.push({ type: "tag", value });
  return subjects;
}

function nameOf(organizationId: string, { type, value }: Subject): string {
  return `${organizationId} ${type} ${value}`;
}

function withBudgets(
  subjects: readonly Subject[],
  budgetIdAt: (at: number) => string | undefined,
): readonly BudgetSubject[] | undefined {
  const budgets = subjects.flatMap((subject, at) => {
    const budgetId = budgetIdAt(at);
    return budgetId === undefined ? [] : [{ budgetId, ...subject }];
  });
  return budgets.length === 0 ? undefined : budgets;
}
