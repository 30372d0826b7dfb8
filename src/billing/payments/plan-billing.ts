import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import { authored } from "../../../db/authored.ts";
import type { Database } from "../../../db/client.ts";
import {
  claimSubscriptions,
  findPlanSubscription,
  findSubscriptionByReference,
  insertPlanSubscription,
  noteStanding,
  type PlanSubscription,
  type SubscriptionState,
  setNextPlan,
} from "../../../db/queries/plan-subscriptions.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import type { PlanName } from "../../lib/plans.ts";
import { PaymentProcessorError } from "./interface.ts";
import { type PaymentMethods, processorFailed } from "./payment-methods.ts";
import type { PlanPrice, PlanProcessor, PlanStanding } from "./plan-processor.ts";

export interface PlanBillingDependencies {
  readonly sql: Database;
  readonly background: Database;
  readonly plans: PlanProcessor;
  readonly processorName: string;
  readonly methods: Pick<PaymentMethods, "chosen" | "customer">;
  readonly organizations: Pick<OrganizationActors, "forget">;
  readonly clock: Clock;
  onError(error: unknown): void;
}

const PAID_PLAN: PlanName = "pro";
const PRICE_CACHE_MS = 600_000;
const TEST_PROCESSOR = "test";
const LOOK_MS = 30_000;
const LOOKS_AT_A_TIME = 20;
/** How often a status is read again because the subscription changed during the read. */
const MAX_READS = 8;

/**
 * Paid plans, which the payment processor bills every month. An organization is on its paid plan while the
 * plan is paid. A subscription is durable before the processor is asked to create it. Its status is read
 * again when the processor reports a change, when a period has ended, and every few hours.
 */
export class PlanBilling {
  readonly #dependencies: PlanBillingDependencies;
  #price: { readonly stated: PlanPrice; readonly untilMs: number } | undefined;
  #pendingPrice: Promise<PlanPrice | undefined> | undefined;
  #looking: Promise<void> | undefined;
  #cancelLook: (() => void) | undefined;
  #isClosed = false;

  constructor(dependencies: PlanBillingDependencies) {
    this.#dependencies = dependencies;
  }

  get sellsPlans(): boolean {
    return this.#dependencies.plans.sells;
  }

  /**
   * Returns the price of the paid plan. Returns undefined if no paid plan is sold, or if the processor did
   * not answer.
   */
  async price(): Promise<PlanPrice | undefined> {
    const { plans, clock } = this.#dependencies;
    if (this.#price !== undefined && clock.nowMs() < this.#price.untilMs) return this.#price.stated;
    // Concurrent callers wait for the same answer.
    this.#pendingPrice ??= plans.price().finally(() => {
      this.#pendingPrice = undefined;
    });
    const stated = await this.#pendingPrice;
    this.#price = stated && { stated, untilMs: clock.nowMs() + PRICE_CACHE_MS };
    return stated;
  }

  /** Returns the subscription of the organization that has not ended. */
  find(organizationId: string): Promise<PlanSubscription | undefined> {
    return findPlanSubscription(this.#dependencies.sql, organizationId);
  }

  /**
   * Subscribes the organization to the paid plan. Throws 402 if the plan is not paid or the organization has no
   * default payment method, 408 if the processor has not reported whether the plan is paid, 409 if the
   * subscription is being changed, and 502 if a call of the processor fails.
   */
  async subscribe(organizationId: string, author: Author): Promise<void> {
    const { sql, methods, processorName } = this.#dependencies;
    const current = await this.find(organizationId);
    // An unpaid subscription is cancelled before another try, which can use another card.
    const isGivenUp =
      current !== undefined && (GIVEN_UP.has(current.state) || current.processor !== processorName);
    if (isGivenUp) await this.cancel(current, author);
    if (isGivenUp || (current?.state !== "pending" && current?.state !== "active")) {
      const method = await methods.chosen(organizationId, undefined);
      const customer = await asking(() => methods.customer(organizationId));
      const order = { organizationId, processor: processorName, plan: PAID_PLAN, customer };
      await insertPlanSubscription(authored(sql, author), {
        ...order,
        id: newId("sub"),
        method: method.reference,
      });
    }
    const subscription = await this.find(organizationId);
    // An operator has changed the plan in the meantime.
    if (subscription === undefined || subscription.state === "ending") throw changed();
    const standing = await this.#read(subscription);
    if (standing === undefined) {
      throw new GatewayError(
        "provider_timeout",
        "The payment processor has not reported whether the plan is paid. The plan takes effect when it is paid: check GET /v1/billing/subscription.",
        { headers: NOT_AGAIN },
      );
    }
    if (standing.state !== "active") throw notPaid(standing);
  }

  /**
   * Sets the plan that follows at the end of the paid period. Throws 409 if the subscription is being changed or
   * its processor is not configured, and 502 if the processor's call fails.
   */
  endWith(subscription: PlanSubscription, nextPlan: PlanName, author: Author): Promise<void> {
    return this.#setEnding(subscription, nextPlan, author);
  }

  /** Removes the planned end, so that the subscription is renewed. Throws like `endWith`. */
  resume(subscription: PlanSubscription, author: Author): Promise<void> {
    return this.#setEnding(subscription, undefined, author);
  }

  /**
   * Ends a subscription that is unpaid or no longer wanted. Throws 409 while the processor is creating it, if it
   * is being changed, or if its processor is not configured, and 502 if the processor's call fails.
   */
  async cancel(subscription: PlanSubscription, author: Author): Promise<void> {
    const { sql, organizations, processorName } = this.#dependencies;
    const { organizationId, processor, state } = subscription;
    if (processor === processorName && state === "pending") throw changed();
    await this.#ask(subscription, (plans) => plans.cancel(subscription));
    const isEnded = await noteStanding(authored(sql, author), subscription, { state: "ended" });
    if (!isEnded) throw changed();
    organizations.forget(organizationId);
  }

  /** Reads the status of a subscription after the processor has reported a change. */
  async recheck(reference: string): Promise<void> {
    const { background, processorName } = this.#dependencies;
    const subscription = await findSubscriptionByReference(background, processorName, reference);
    if (subscription !== undefined && subscription.state !== "ended") {
      await this.#read(subscription);
    }
  }

  start(): void {
    this.#looking = this.#lookAtDue();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelLook?.();
    await this.#looking;
  }

  async #setEnding(
    subscription: PlanSubscription,
    nextPlan: PlanName | undefined,
    author: Author,
  ): Promise<void> {
    const { sql } = this.#dependencies;
    const { reference } = subscription;
    if (reference === undefined) throw changed();
    await this.#ask(subscription, (plans) => plans.setEnding(reference, nextPlan !== undefined));
    const isSet = await setNextPlan(authored(sql, author), subscription, nextPlan ?? null);
    if (!isSet) throw changed();
  }

  /**
   * Calls the subscription's processor. Throws 409 if the gateway is not configured for that processor, and 502 if
   * the call fails.
   */
  async #ask(
    { processor }: PlanSubscription,
    ask: (plans: PlanProcessor) => Promise<void>,
  ): Promise<void> {
    const { plans, processorName } = this.#dependencies;
    if (processor === processorName) return asking(() => ask(plans));
    // The test processor bills nothing, so there is nothing to change at it.
    if (processor === TEST_PROCESSOR) return;
    throw new GatewayError(
      "subscription_changing",
      `The plan is billed through ${processor}, which is no longer configured. The gateway's operator must configure it again so that the subscription can be ended there.`,
    );
  }

  /**
   * Reads the status from the processor and stores it. Returns undefined if the processor did not answer.
   */
  async #read(initial: PlanSubscription): Promise<PlanStanding | undefined> {
    const { plans, processorName, background, organizations } = this.#dependencies;
    let subscription: PlanSubscription | undefined = initial;
    for (let reads = 0; subscription !== undefined && reads < MAX_READS; reads++) {
      if (subscription.processor !== processorName) return undefined;
      const standing = await standingOf(plans, subscription);
      if (standing === undefined) return undefined;
      if (await noteStanding(background, subscription, standing)) {
        organizations.forget(subscription.organizationId);
        return standing;
      }
      subscription = await findPlanSubscription(background, subscription.organizationId);
    }
    return undefined;
  }

  async #lookAtDue(): Promise<void> {
    const { background, processorName, clock, onError } = this.#dependencies;
    try {
      const due = await claimSubscriptions(background, processorName, LOOKS_AT_A_TIME);
      await Promise.all(due.map((subscription) => this.#read(subscription)));
    } catch (error) {
      onError(error);
    }
    if (this.#isClosed) return;
    this.#cancelLook = clock.after(LOOK_MS, () => this.start());
  }
}

const GIVEN_UP: ReadonlySet<SubscriptionState> = new Set(["open", "unpaid", "ending"]);

/**
 * Reads the status with the call that fits the subscription's state. Returns undefined if the processor did
 * not answer.
 */
async function standingOf(
  plans: PlanProcessor,
  subscription: PlanSubscription,
): Promise<PlanStanding | undefined> {
  if (subscription.state === "pending") return plans.subscribe(subscription);
  if (subscription.state !== "ending") return plans.read(subscription);
  try {
    await plans.cancel(subscription);
    return { state: "ended" };
  } catch (error) {
    if (!(error instanceof PaymentProcessorError)) throw error;
    return undefined;
  }
}

/** Prevents SDKs from sending the request again. */
const NOT_AGAIN = { "x-should-retry": "false" };

function notPaid({ message, invoiceUrl }: PlanStanding): GatewayError {
  const why = message ?? "The card was declined, or its holder must authenticate.";
  const way =
    invoiceUrl === undefined
      ? "Add another payment method and make it the default."
      : `Pay at ${invoiceUrl}: the plan takes effect afterwards.`;
  return new GatewayError("payment_declined", `The plan is not paid. ${why} ${way}`, {
    headers: NOT_AGAIN,
    ...(invoiceUrl !== undefined && { fields: { authentication_url: invoiceUrl } }),
  });
}

function changed(): GatewayError {
  return new GatewayError(
    "subscription_changing",
    "The subscription is being changed at the moment: try again.",
  );
}

async function asking<Result>(ask: () => Promise<Result>): Promise<Result> {
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof PaymentProcessorError)) throw error;
    throw processorFailed(error);
  }
}
