import type { OrganizationActors } from "../../actors/organization/actor.ts";
import type { Database } from "../../db/client.ts";
import {
  changeOrganization,
  createOrganization,
  findOperatedOrganization,
  listOperatedOrganizations,
  type OperatedOrganization,
  type OrganizationSettings,
} from "../../db/queries/organizations.ts";
import type { Suspensions } from "../http/suspensions.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import { newId } from "../lib/ids.ts";
import { usdText } from "../lib/money.ts";
import type { CreditOrders } from "../money/credit-orders.ts";
import { initialCreditLimitNano } from "../money/plans.ts";
import { type PreparedOrganization, prepareOrganization } from "./new-organization.ts";

export interface OrganizationAdministrationDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly organizations: OrganizationActors;
  readonly suspensions: Suspensions;
  readonly orders: CreditOrders;
  /** What a new organization gets where nothing else is asked for. */
  readonly defaults: { readonly plan: string; readonly startingCreditNano: bigint };
}

export interface OrganizationChange extends Partial<OrganizationSettings> {
  /** Null is without limit; undefined leaves it, or follows the plan where that changes. */
  readonly creditLimitNano?: bigint | null;
}

/** What operators do with organizations. Changes take effect on every instance within a second. */
export class OrganizationAdministration {
  readonly #dependencies: OrganizationAdministrationDependencies;

  constructor(dependencies: OrganizationAdministrationDependencies) {
    this.#dependencies = dependencies;
  }

  list(page: { readonly limit: number; readonly offset: number }) {
    return listOperatedOrganizations(this.#dependencies.sql, page);
  }

  /** Throws 404. */
  async find(id: string): Promise<OperatedOrganization> {
    const found = await findOperatedOrganization(this.#dependencies.sql, id);
    if (found !== undefined) return found;
    throw new GatewayError("organization_not_found", "There is no such organization.");
  }

  /** Creates an organization with its first keys, which are shown this once, or nothing at all. */
  async create(
    request: OrganizationChange & { readonly name: string; readonly startingCreditNano?: bigint },
  ): Promise<{ organization: OperatedOrganization; prepared: PreparedOrganization }> {
    const { sql, clock, defaults } = this.#dependencies;
    const { creditLimitNano, startingCreditNano, name, plan, ...settings } = request;
    const prepared = prepareOrganization(
      {
        name,
        plan: plan ?? defaults.plan,
        startingCreditNano: startingCreditNano ?? defaults.startingCreditNano,
      },
      clock.nowMs(),
    );
    const { id } = prepared.organization;
    const limit = creditLimitNano === undefined ? {} : { creditLimitNano };
    await sql.begin(async (transaction) => {
      await createOrganization(transaction, { ...prepared.organization, ...limit });
      await changeOrganization(transaction, id, settings);
    });
    this.#forget(id, settings);
    return { organization: await this.find(id), prepared };
  }

  /**
   * Throws 404, and 402 where the balance is below what the new credit limit allows: then nothing is
   * changed. The limit is set first, so that a repeated call finishes one that was broken off.
   */
  async change(id: string, change: OrganizationChange): Promise<OperatedOrganization> {
    const { creditLimitNano: _, ...settings } = change;
    const before = await this.find(id);
    const limit = creditLimitAfter(before, change);
    if (limit !== before.creditLimitNano) await this.#setCreditLimit(before, limit);
    if (Object.keys(settings).length > 0) {
      const { sql } = this.#dependencies;
      await sql.begin((transaction) => changeOrganization(transaction, id, settings));
    }
    this.#forget(id, settings);
    return this.find(id);
  }

  async #setCreditLimit(
    { id, balanceNano }: OperatedOrganization,
    creditLimitNano: bigint | null,
  ): Promise<void> {
    const { isRefused } = await this.#dependencies.orders.give({
      kind: "credit-limit",
      id: newId("cmd"),
      organizationId: id,
      creditLimitNano,
    });
    if (!isRefused) return;
    throw new GatewayError(
      "insufficient_credits",
      `The balance is ${usdText(balanceNano)} USD, and running requests may hold a part of it: more than the credit limit of ${usdText(creditLimitNano ?? 0n)} USD is used or held.`,
      { param: "credit_limit_usd" },
    );
  }

  /** The next request on this instance sees the change; other instances are notified. */
  #forget(id: string, { isSuspended }: Partial<OrganizationSettings>): void {
    const { organizations, suspensions } = this.#dependencies;
    organizations.forget(id);
    if (isSuspended !== undefined) suspensions.forget();
  }
}

/**
 * The credit limit that a change leads to: the one it names; else that of the new plan, unless the operator
 * has set another one than that of the plan before.
 */
export function creditLimitAfter(
  before: OperatedOrganization,
  { creditLimitNano, plan = before.plan }: OrganizationChange,
): bigint | null {
  if (creditLimitNano !== undefined) return creditLimitNano;
  const isOfPlan = before.creditLimitNano === initialCreditLimitNano(before.plan);
  return isOfPlan ? initialCreditLimitNano(plan) : before.creditLimitNano;
}
