import type { SubscriptionStanding } from "../../../db/queries/plan-subscriptions.ts";
import type { Clock } from "../../lib/clock.ts";
import { type NanoUsd, usdNumber } from "../../lib/money.ts";
import { addUtcMonths } from "../../lib/utc-time.ts";
import type { PaymentProcessor } from "./interface.ts";

/**
 * A subscription as the processor receives it. A repeated call for the same id creates no second
 * subscription.
 */
export interface PlanOrder {
  readonly id: string;
  readonly organizationId: string;
  readonly customer: string | undefined;
  /** The processor's id of the payment method. */
  readonly method: string;
  readonly createdAtMs: number;
}

/** A subscription that was requested before. */
export interface EarlierPlanOrder extends PlanOrder {
  readonly reference: string | undefined;
  readonly periodEndMs: number | undefined;
  /** The plan that follows this period. Undefined if the subscription is renewed. */
  readonly nextPlan: string | undefined;
}

export interface PlanStanding extends SubscriptionStanding {
  /** The reason why the plan is not paid, as a text for the payer. */
  readonly message?: string | undefined;
}

/** The price of a paid plan for each billing interval. */
export interface PlanPrice {
  /** Price in whole units of the currency, such as dollars. */
  readonly amount: number;
  /** Currency code (ISO 4217), in upper case. */
  readonly currency: string;
  /** `month`; Stripe also has other intervals. */
  readonly interval: string;
  readonly intervalCount: number;
}

/**
 * A payment processor that bills paid plans every month. A status of undefined means that the processor did
 * not answer.
 */
export interface PlanProcessor {
  /** False if the processor sells no new subscriptions and only bills existing ones. */
  readonly sells: boolean;
  /** Returns the price of the paid plan, or undefined if the processor did not answer. */
  price(): Promise<PlanPrice | undefined>;
  subscribe(order: PlanOrder): Promise<PlanStanding | undefined>;
  read(order: EarlierPlanOrder): Promise<PlanStanding | undefined>;
  /**
   * Sets whether the subscription ends with its period. Throws PaymentProcessorError if the processor rejects the
   * call or does not answer.
   */
  setEnding(reference: string, ends: boolean): Promise<void>;
  /**
   * Ends the subscription immediately, even if its reference is unknown or it has already ended. Throws like
   * `setEnding`.
   */
  cancel(order: EarlierPlanOrder): Promise<void>;
}

/**
 * Bills plans through the built-in test processor: at the start, and then on the same day of each month or on
 * the month's last day. No money moves. A declined card ends the plan.
 */
export class TestPlans implements PlanProcessor {
  readonly sells = true;
  readonly #processor: Pick<PaymentProcessor, "charge">;
  readonly #priceNano: NanoUsd;
  readonly #clock: Clock;

  constructor(processor: Pick<PaymentProcessor, "charge">, priceNano: NanoUsd, clock: Clock) {
    this.#processor = processor;
    this.#priceNano = priceNano;
    this.#clock = clock;
  }

  async price(): Promise<PlanPrice> {
    const amount = usdNumber(this.#priceNano);
    return { amount, currency: "USD", interval: "month", intervalCount: 1 };
  }

  async subscribe(order: PlanOrder): Promise<PlanStanding> {
    const { id, organizationId, customer, method, createdAtMs } = order;
    const reference = `test_${id}`;
    const nowMs = this.#clock.nowMs();
    let months = 0;
    while (addUtcMonths(createdAtMs, months + 1) <= nowMs) months++;
    const paid = await this.#processor.charge({
      ...{ intentId: `${id}_${months}`, organizationId, customer, method },
      amountNano: this.#priceNano,
      description: "Plan pro",
      returnUrl: undefined,
    });
    if (paid.kind !== "succeeded") {
      const message = paid.kind === "declined" ? paid.message : undefined;
      return { state: "ended", reference, message };
    }
    return {
      state: "active",
      reference,
      periodStartMs: addUtcMonths(createdAtMs, months),
      periodEndMs: addUtcMonths(createdAtMs, months + 1),
    };
  }

  async read(order: EarlierPlanOrder): Promise<PlanStanding> {
    const { periodEndMs, nextPlan } = order;
    const isOver = periodEndMs !== undefined && periodEndMs <= this.#clock.nowMs();
    return isOver && nextPlan !== undefined ? { state: "ended" } : this.subscribe(order);
  }

  async setEnding(): Promise<void> {}

  async cancel(): Promise<void> {}
}
