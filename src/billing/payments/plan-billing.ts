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
const PRICE_KEPT_MS = 600_000;
const TEST_PROCESSOR = "test";
const LOOK_MS = 30_000;
const LOOKS_AT_A_TIME = 20;
/** How often a standing is read again because the subscription changed meanwhile. */
const MAX_READS = 8;

/**
 * Paid plans, which the payment processor bills month by month. The organization is on its plan while that is
 * paid. A subscription is durable before the processor is asked for it; how it stands is asked again when the
 * processor reports a change, when a period has ended, and every few hours.
 */
export class PlanBilling {
  readonly #dependencies: PlanBillingDependencies;
  #price: { readonly stated: PlanPrice; readonly untilMs: number } | undefined;
  #asked: Promise<PlanPrice | undefined> | undefined;
  #looking: Promise<void> | undefined;
  #cancelLook: (() => void) | undefined;
  #isClosed = false;

  constructor(dependencies: PlanBillingDependencies) {
    this.#dependencies = dependencies;
  }

  get sellsPlans(): boolean {
    return this.#dependencies.plans.sells;
  }

  /** Undefined where no paid plan is sold, or the processor did not say. */
  async price(): Promise<PlanPrice | undefined> {
    const { plans, clock } = this.#dependencies;
    if (this.#price !== undefined && clock.nowMs() < this.#price.untilMs) return this.#price.stated;
    // Callers that ask meanwhile wait for the same answer.
    this.#asked ??= plans.price().finally(() => {
      this.#asked = undefined;
    });
    const stated = await this.#asked;
    this.#price = stated && { stated, untilMs: clock.nowMs() + PRICE_KEPT_MS };
    return stated;
  }

  /** That of the organization which has not ended. */
  find(organizationId: string): Promise<PlanSubscription | undefined> {
    return findPlanSubscription(this.#dependencies.sql, organizationId);
  }

  /** Throws 402 where it is not paid, 408 where the processor did not say, 502. */
  async subscribe(organizationId: string, author: Author): Promise<void> {
    const { sql, methods, processorName } = this.#dependencies;
    const known = await this.find(organizationId);
    // What was not paid is given up for another try, perhaps with another card.
    const isGivenUp =
      known !== undefined && (GIVEN_UP.has(known.state) || known.processor !== processorName);
    if (isGivenUp) await this.cancel(known, author);
    if (isGivenUp || (known?.state !== "pending" && known?.state !== "active")) {
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
    // An operator has changed the plan meanwhile.
    if (subscription === undefined || subscription.state === "ending") throw changed();
    const standing = await this.#read(subscription);
    if (standing === undefined) {
      throw new GatewayError(
        "provider_timeout",
        "The payment processor has not said whether the plan is paid. It takes effect once it is: look at GET /v1/billing/subscription.",
        { headers: NOT_AGAIN },
      );
    }
    if (standing.state !== "active") throw notPaid(standing);
  }

  /** The plan that is paid for lasts to the end of its period. Throws 502. */
  endWith(subscription: PlanSubscription, nextPlan: PlanName, author: Author): Promise<void> {
    return this.#setEnding(subscription, nextPlan, author);
  }

  /** It goes on after all. Throws 502. */
  resume(subscription: PlanSubscription, author: Author): Promise<void> {
    return this.#setEnding(subscription, undefined, author);
  }

  /** Ends what is not paid, or not wanted. Throws 409 while the processor is asked, or cannot be, 502. */
  async cancel(subscription: PlanSubscription, author: Author): Promise<void> {
    const { sql, organizations, processorName } = this.#dependencies;
    const { organizationId, processor, state } = subscription;
    if (processor === processorName && state === "pending") throw changed();
    await this.#ask(subscription, (plans) => plans.cancel(subscription));
    const isEnded = await noteStanding(authored(sql, author), subscription, { state: "ended" });
    if (!isEnded) throw changed();
    organizations.forget(organizationId);
  }

  /** The processor reports a change. */
  async recheck(reference: string): Promise<void> {
    const { background, processorName } = this.#dependencies;
    const known = await findSubscriptionByReference(background, processorName, reference);
    if (known !== undefined && known.state !== "ended") await this.#read(known);
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

  /** Throws 409 where its processor is another one than this gateway is set up for, 502. */
  async #ask(
    { processor }: PlanSubscription,
    ask: (plans: PlanProcessor) => Promise<void>,
  ): Promise<void> {
    const { plans, processorName } = this.#dependencies;
    if (processor === processorName) return asking(() => ask(plans));
    // Of the test processor nothing is billed, and nothing is to be asked.
    if (processor === TEST_PROCESSOR) return;
    throw new GatewayError(
      "subscription_changing",
      `The plan is billed through ${processor}, for which this gateway is not set up any more: its operator has to set that up again, so that it can be ended there.`,
    );
  }

  /** Asks how it stands, and writes that down; undefined where the processor did not say. */
  async #read(known: PlanSubscription): Promise<PlanStanding | undefined> {
    const { plans, processorName, background, organizations } = this.#dependencies;
    let subscription: PlanSubscription | undefined = known;
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

/** Asked as its state wants; undefined where the processor did not say. */
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

/** SDKs would send it again. */
const NOT_AGAIN = { "x-should-retry": "false" };

function notPaid({ message, invoiceUrl }: PlanStanding): GatewayError {
  const why = message ?? "The card was declined, or its holder is to authenticate.";
  const way =
    invoiceUrl === undefined
      ? "Add another payment method and make it the default."
      : `Pay at ${invoiceUrl}: the plan takes effect then.`;
  return new GatewayError("payment_declined", `The plan is not paid. ${why} ${way}`, {
    headers: NOT_AGAIN,
    ...(invoiceUrl !== undefined && { fields: { authentication_url: invoiceUrl } }),
  });
}

function changed(): GatewayError {
  return new GatewayError(
    "subscription_changing",
    "The subscription is being changed at this moment: try again.",
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
