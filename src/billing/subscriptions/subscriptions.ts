import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import { authored } from "../../../db/authored.ts";
import type { Database } from "../../../db/client.ts";
import { findOperatedOrganization } from "../../../db/queries/organizations.ts";
import type { PaymentMethod } from "../../../db/queries/payment-methods.ts";
import type { PlanSubscription } from "../../../db/queries/plan-subscriptions.ts";
import { chargedSince, choosePlan } from "../../../db/queries/subscriptions.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { NanoUsd } from "../../lib/money.ts";
import { feePercentOf, PLANS, type PlanName, planOf } from "../../lib/plans.ts";
import { utcMonth } from "../../lib/utc-time.ts";
import type { PaymentMethods } from "../payments/payment-methods.ts";
import type { PlanBilling } from "../payments/plan-billing.ts";

interface SubscriptionDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly organizations: OrganizationActors;
  readonly planBilling: PlanBilling;
  readonly methods: Pick<PaymentMethods, "list">;
}

export interface Subscription {
  readonly plan: string;
  readonly feePercent: number;
  readonly billingPeriod: string;
  readonly periodStartMs: number;
  readonly periodEndMs: number;
  readonly usageNano: NanoUsd;
  /** The default payment method. */
  readonly method: PaymentMethod | undefined;
  /** The subscription of a paid plan that the payment processor bills or will bill. */
  readonly billed: PlanSubscription | undefined;
}

/** Plans that an organization can leave and choose without a payment. */
const SELF_SERVICE = PLANS.filter((plan) => planOf(plan).chosenBy === "self");

/** The plans of organizations, as organizations see and choose them. */
export class Subscriptions {
  readonly #dependencies: SubscriptionDependencies;

  constructor(dependencies: SubscriptionDependencies) {
    this.#dependencies = dependencies;
  }

  /** Returns the organization's plan, billing period and usage. Throws 404 if the organization does not exist. */
  async find(organizationId: string): Promise<Subscription> {
    const { sql, clock, planBilling, methods } = this.#dependencies;
    const [organization, billed, listed] = await Promise.all([
      findOperatedOrganization(sql, organizationId),
      planBilling.find(organizationId),
      methods.list(organizationId),
    ]);
    if (organization === undefined) {
      throw new GatewayError("organization_not_found", "There is no such organization.");
    }
    const { plan } = organization;
    const month = utcMonth(clock.nowMs());
    const isBilled = billed?.state === "active" && billed.plan === plan;
    const { periodStartMs = month.startMs, periodEndMs = month.endMs } = isBilled ? billed : {};
    return {
      plan,
      feePercent: feePercentOf(organization),
      billingPeriod: planOf(plan).billingPeriod,
      periodStartMs,
      periodEndMs,
      usageNano: await chargedSince(sql, organizationId, periodStartMs),
      method: listed.find(({ isDefault }) => isDefault),
      billed,
    };
  }

  /**
   * Changes the plan. This instance charges the organization's next request by the new plan; other instances
   * follow within a second. A paid plan ends with its period. Throws 403 if only an operator can make the change,
   * and like `PlanBilling.subscribe`, `endWith` or `cancel`.
   */
  async choose(organizationId: string, plan: PlanName, author: Author): Promise<Subscription> {
    const { planBilling } = this.#dependencies;
    const { plan: before, billed } = await this.find(organizationId);
    if (plan === before && billed?.nextPlan !== undefined) {
      await planBilling.resume(billed, author);
    } else if (billed?.state === "active" && before === billed.plan) {
      await this.#leavePaid(billed, plan, author);
    } else if (planOf(plan).chosenBy === "paid" && plan !== before) {
      if (!planBilling.sellsPlans || !SELF_SERVICE.includes(before as PlanName))
        throw ofOperators();
      await planBilling.subscribe(organizationId, author);
    } else await this.#switchPlan(organizationId, plan, billed, author);
    return this.find(organizationId);
  }

  async #leavePaid(billed: PlanSubscription, plan: PlanName, author: Author): Promise<void> {
    if (plan === billed.plan) return;
    if (!SELF_SERVICE.includes(plan)) throw ofOperators();
    await this.#dependencies.planBilling.endWith(billed, plan, author);
  }

  async #switchPlan(
    organizationId: string,
    plan: PlanName,
    billed: PlanSubscription | undefined,
    author: Author,
  ): Promise<void> {
    const { sql, organizations, planBilling } = this.#dependencies;
    const leavable = SELF_SERVICE.includes(plan) ? SELF_SERVICE : [];
    const isOn = await authored(sql, author).begin((transaction) =>
      choosePlan(transaction, organizationId, plan, leavable),
    );
    if (!isOn) throw ofOperators();
    organizations.forget(organizationId);
    // Otherwise the payment of an open subscription would switch to the paid plan later.
    if (billed !== undefined) await planBilling.cancel(billed, author);
  }
}

function ofOperators(): GatewayError {
  return new GatewayError(
    "key_not_permitted",
    `Organizations can choose the plans ${SELF_SERVICE.join(" and ")}, and pro if it is sold. The gateway's operator makes every other change of plan.`,
    { param: "plan" },
  );
}
