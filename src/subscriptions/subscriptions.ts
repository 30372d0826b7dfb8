import type { OrganizationActors } from "../../actors/organization/actor.ts";
import type { Database } from "../../db/client.ts";
import { findOperatedOrganization } from "../../db/queries/organizations.ts";
import { chargedSince, choosePlan } from "../../db/queries/subscriptions.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import type { NanoUsd } from "../lib/money.ts";
import { feePercentOf, PLANS, type PlanName, planOf } from "../lib/plans.ts";
import { utcMonth } from "../lib/utc-time.ts";

interface SubscriptionDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly organizations: OrganizationActors;
}

export interface Subscription {
  readonly plan: string;
  readonly feePercent: number;
  readonly billingPeriod: string;
  readonly periodStartMs: number;
  readonly periodEndMs: number;
  readonly usageNano: NanoUsd;
}

/** Plans that an organization may choose by itself, and leave. */
const SELF_SERVICE = PLANS.filter((plan) => planOf(plan).isSelfService);

/** The plans of organizations, as they see and choose them. */
export class Subscriptions {
  readonly #dependencies: SubscriptionDependencies;

  constructor(dependencies: SubscriptionDependencies) {
    this.#dependencies = dependencies;
  }

  /** Throws 404. */
  async find(organizationId: string): Promise<Subscription> {
    const { sql, clock } = this.#dependencies;
    const { startMs, endMs } = utcMonth(clock.nowMs());
    const [organization, usageNano] = await Promise.all([
      findOperatedOrganization(sql, organizationId),
      chargedSince(sql, organizationId, startMs),
    ]);
    if (organization === undefined) {
      throw new GatewayError("organization_not_found", "There is no such organization.");
    }
    return {
      plan: organization.plan,
      feePercent: feePercentOf(organization),
      billingPeriod: planOf(organization.plan).billingPeriod,
      periodStartMs: startMs,
      periodEndMs: endMs,
      usageNano,
    };
  }

  /**
   * The next request of the organization on this instance is charged by the new plan; other instances follow
   * within a second. Throws 403 where only an operator may make the change.
   */
  async choose(organizationId: string, plan: PlanName): Promise<Subscription> {
    const { sql, organizations } = this.#dependencies;
    const leavable = planOf(plan).isSelfService ? SELF_SERVICE : [];
    const isOn = await sql.begin((transaction) =>
      choosePlan(transaction, organizationId, plan, leavable),
    );
    if (!isOn) throw ofOperators();
    organizations.forget(organizationId);
    return this.find(organizationId);
  }
}

function ofOperators(): GatewayError {
  return new GatewayError(
    "key_not_permitted",
    `Organizations choose among the plans ${SELF_SERVICE.join(" and ")} by themselves. Every other change of plan is made by the gateway's operator.`,
    { param: "plan" },
  );
}
