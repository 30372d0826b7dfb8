import type { SubscriptionStanding } from "../../../db/queries/plan-subscriptions.ts";
import type { Clock } from "../../lib/clock.ts";
import { type NanoUsd, usdNumber } from "../../lib/money.ts";
import { addUtcMonths } from "../../lib/utc-time.ts";
import type { PaymentProcessor } from "./interface.ts";

/** A subscription as the processor is asked for it. Asking again for the same id makes no second one. */
export interface PlanOrder {
  readonly id: string;
  readonly organizationId: string;
  readonly customer: string | undefined;
  /** As the processor names it. */
  readonly method: string;
  readonly createdAtMs: number;
}

/** One that was asked for before. */
export interface EarlierPlanOrder extends PlanOrder {
  readonly reference: string | undefined;
  readonly periodEndMs: number | undefined;
  /** Undefined: it is renewed at the end of its period. */
  readonly nextPlan: string | undefined;
}

export interface PlanStanding extends SubscriptionStanding {
  /** Why there is none, for the payer. */
  readonly message?: string | undefined;
}

/** What a paid plan costs each time it is billed. */
export interface PlanPrice {
  /** In whole units of the currency. */
  readonly amount: number;
  /** ISO 4217, in capitals. */
  readonly currency: string;
  /** `month`; Stripe has others too. */
  readonly interval: string;
  readonly intervalCount: number;
}

/** What bills a paid plan month by month. Undefined standings: the processor did not say. */
export interface PlanProcessor {
  /** False: it bills those that were sold before. */
  readonly sells: boolean;
  /** Undefined: the processor did not say. */
  price(): Promise<PlanPrice | undefined>;
  subscribe(order: PlanOrder): Promise<PlanStanding | undefined>;
  read(order: EarlierPlanOrder): Promise<PlanStanding | undefined>;
  /** Whether it ends with its period. Throws PaymentProcessorError. */
  setEnding(reference: string, ends: boolean): Promise<void>;
  /** Ends it now, also where its reference is not known; it may have ended before. Throws PaymentProcessorError. */
  cancel(order: EarlierPlanOrder): Promise<void>;
}

/**
 * Bills the built-in test processor: at the start and then on the same day of each month, as far as that month
 * has it. No money moves; a card that declines ends the plan.
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
