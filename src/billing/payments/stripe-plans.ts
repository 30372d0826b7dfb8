import Stripe from "stripe";
import type {
  EarlierPlanOrder,
  PlanOrder,
  PlanPrice,
  PlanProcessor,
  PlanStanding,
} from "./plan-processor.ts";
import {
  callStripe,
  idOf,
  isRefusal,
  KEY_LIFE_MS,
  ORGANIZATION_FIELD,
} from "./stripe-processor.ts";

const SUBSCRIPTION_FIELD = "gateway_subscription";
const MS = 1_000;
/** Short, because a person waits for the price on a page. */
const PRICE_TIMEOUT_MS = 5_000;

/**
 * Bills paid plans with Stripe subscriptions. Our subscription id is the idempotency key and is stored in the
 * metadata.
 */
export class StripePlans implements PlanProcessor {
  readonly #stripe: Stripe;
  readonly #priceId: string | undefined;
  readonly #nowMs: () => number;

  /** @param priceId Stripe's id of the recurring price; undefined if no plan is sold */
  constructor(stripe: Stripe, priceId: string | undefined, nowMs: () => number) {
    this.#stripe = stripe;
    this.#priceId = priceId;
    this.#nowMs = nowMs;
  }

  get sells(): boolean {
    return this.#priceId !== undefined;
  }

  async price(): Promise<PlanPrice | undefined> {
    if (this.#priceId === undefined) return undefined;
    try {
      const options = { timeout: PRICE_TIMEOUT_MS };
      return priceOf(await this.#stripe.prices.retrieve(this.#priceId, {}, options));
    } catch {
      return undefined;
    }
  }

  async subscribe(order: PlanOrder): Promise<PlanStanding | undefined> {
    try {
      const isFresh = this.#nowMs() - order.createdAtMs < KEY_LIFE_MS;
      const priceId = isFresh ? this.#priceId : undefined;
      const existing =
        priceId === undefined ? await this.#find(order) : await this.#create(order, priceId);
      return existing === undefined ? { state: "ended" } : standingOf(existing);
    } catch (error) {
      if (error instanceof Stripe.errors.StripeCardError) {
        return { state: "ended", message: error.message };
      }
      const isFinal = isRefusal(error) && !(error instanceof Stripe.errors.StripeRateLimitError);
      return isFinal ? this.#refused(order) : undefined;
    }
  }

  /**
   * Returns the status after Stripe rejected the request. The subscription can exist from an earlier request
   * whose answer was lost.
   */
  async #refused(order: PlanOrder): Promise<PlanStanding | undefined> {
    try {
      const existing = await this.#find(order);
      if (existing !== undefined) return standingOf(existing);
    } catch {
      return undefined;
    }
    return { state: "ended", message: "The payment processor refused the subscription." };
  }

  async read(order: EarlierPlanOrder): Promise<PlanStanding | undefined> {
    const { reference } = order;
    if (reference === undefined) return this.subscribe(order);
    try {
      const read = await this.#stripe.subscriptions.retrieve(reference, {
        expand: ["latest_invoice"],
      });
      return standingOf(read);
    } catch {
      // The status is read again later.
      return undefined;
    }
  }

  async setEnding(reference: string, ends: boolean): Promise<void> {
    await callStripe(() =>
      this.#stripe.subscriptions.update(reference, { cancel_at_period_end: ends }),
    );
  }

  async cancel(order: EarlierPlanOrder): Promise<void> {
    const reference = order.reference ?? (await callStripe(() => this.#find(order)))?.id;
    if (reference === undefined) return;
    const { status } = await callStripe(() => this.#stripe.subscriptions.retrieve(reference));
    if (status === "canceled" || status === "incomplete_expired") return;
    await callStripe(() => this.#stripe.subscriptions.cancel(reference));
  }

  #create(order: PlanOrder, priceId: string): Promise<Stripe.Subscription> {
    return this.#stripe.subscriptions.create(
      {
        customer: order.customer!,
        items: [{ price: priceId }],
        default_payment_method: order.method,
        payment_behavior: "allow_incomplete",
        metadata: {
          [SUBSCRIPTION_FIELD]: order.id,
          [ORGANIZATION_FIELD]: order.organizationId,
        },
        expand: ["latest_invoice"],
      },
      { idempotencyKey: order.id },
    );
  }

  async #find({ id, customer }: PlanOrder): Promise<Stripe.Subscription | undefined> {
    const listed = this.#stripe.subscriptions.list({
      ...(customer !== undefined && { customer }),
      status: "all",
      limit: 100,
      expand: ["data.latest_invoice"],
    });
    for await (const subscription of listed) {
      if (subscription.metadata?.[SUBSCRIPTION_FIELD] === id) return subscription;
    }
    return undefined;
  }
}

/**
 * Decimals of the currencies for which Stripe differs from ISO 4217 (https://docs.stripe.com/currencies).
 */
const STRIPE_DECIMALS: Readonly<Record<string, number>> = { isk: 2, ugx: 2, mga: 0 };

/** Returns undefined if the price is not a single amount, such as a price in tiers. */
function priceOf({ unit_amount, currency, recurring }: Stripe.Price): PlanPrice | undefined {
  if (unit_amount === null || recurring === null) return undefined;
  const { interval, interval_count: intervalCount } = recurring;
  const { maximumFractionDigits = 2 } = new Intl.NumberFormat("en", {
    style: "currency",
    currency,
  }).resolvedOptions();
  const amount = unit_amount / 10 ** (STRIPE_DECIMALS[currency] ?? maximumFractionDigits);
  return { amount, currency: currency.toUpperCase(), interval, intervalCount };
}

const STATES: Readonly<Record<string, PlanStanding["state"]>> = {
  active: "active",
  trialing: "active",
  incomplete: "open",
  past_due: "unpaid",
  unpaid: "unpaid",
};

function standingOf(subscription: Stripe.Subscription): PlanStanding {
  const [item] = subscription.items.data;
  const invoice = subscription.latest_invoice;
  const state = STATES[subscription.status] ?? "ended";
  const invoiceUrl = typeof invoice === "object" ? invoice?.hosted_invoice_url : undefined;
  return {
    state,
    reference: idOf(subscription),
    ...(invoiceUrl != null && { invoiceUrl }),
    ...(item !== undefined && {
      periodStartMs: item.current_period_start * MS,
      periodEndMs: item.current_period_end * MS,
    }),
  };
}
