import { CardRefunds } from "../../billing/ledger/card-refunds.ts";
import { PaymentReversals } from "../../billing/ledger/payment-reversals.ts";
import { AutoReplenish } from "../../billing/payments/auto-replenish.ts";
import type { PaymentProcessor } from "../../billing/payments/interface.ts";
import { PaymentMethods } from "../../billing/payments/payment-methods.ts";
import { Payments } from "../../billing/payments/payments.ts";
import { PlanBilling } from "../../billing/payments/plan-billing.ts";
import { type PlanProcessor, TestPlans } from "../../billing/payments/plan-processor.ts";
import { StripeEvents } from "../../billing/payments/stripe-events.ts";
import { StripePlans } from "../../billing/payments/stripe-plans.ts";
import { createStripe, StripeProcessor } from "../../billing/payments/stripe-processor.ts";
import { TestProcessor } from "../../billing/payments/test-processor.ts";
import type { Clock } from "../../lib/clock.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import type { Base } from "./base.ts";
import type { Part } from "./lifecycle.ts";
import type { MoneyParts } from "./money.ts";

export interface PaymentParts extends Part {
  readonly payments: Payments;
  readonly methods: PaymentMethods;
  readonly replenish: AutoReplenish;
  readonly planBilling: PlanBilling;
  readonly cardRefunds: CardRefunds;
  /** Undefined if no processor reports to this gateway. */
  readonly stripeEvents: StripeEvents | undefined;
}

/** Composes Stripe if its key is set, otherwise the test processor. */
export function composePayments(
  base: Base,
  { world, orders, suspensions }: Pick<MoneyParts, "world" | "orders" | "suspensions">,
): PaymentParts {
  const { config, changes, clock } = base;
  const { processor, plans } = processorsOf(config, clock);
  const { organizations } = world;
  const common = { ...base, processor, organizations, orders, suspensions };
  const methods = new PaymentMethods(common);
  const payments = new Payments({ ...common, methods });
  const replenish = new AutoReplenish({ ...common, payments, methods });
  changes.on("replenish", () => replenish.wake());
  changes.onGap(() => replenish.wake());
  const planBilling = new PlanBilling({ ...common, plans, processorName: processor.name, methods });
  const refunds = new CardRefunds(common);
  const reversals = new PaymentReversals(common);
  const webhookSecret = config.stripe?.webhookSecret;
  const stripeEvents =
    webhookSecret === undefined
      ? undefined
      : new StripeEvents({
          ...common,
          ...{ webhookSecret, payments, methods, planBilling, refunds, reversals },
        });
  return {
    methods,
    payments,
    replenish,
    planBilling,
    cardRefunds: refunds,
    stripeEvents,
    /** Continues the payments that are open. */
    start() {
      for (const part of [payments, replenish, planBilling, refunds, reversals]) part.start();
    },
    async stop() {
      refunds.close();
      reversals.close();
      await planBilling.close();
      await replenish.close();
      await payments.close();
    },
  };
}

function processorsOf(
  { stripe: access, proPriceNanoUsd, testPayments }: GatewayConfig,
  clock: Clock,
): { readonly processor: PaymentProcessor; readonly plans: PlanProcessor } {
  if (access === undefined) {
    const processor = new TestProcessor(testPayments);
    return { processor, plans: new TestPlans(processor, proPriceNanoUsd, clock) };
  }
  const stripe = createStripe(access);
  const nowMs = () => clock.nowMs();
  return {
    processor: new StripeProcessor(stripe, nowMs),
    plans: new StripePlans(stripe, access.proPriceId, nowMs),
  };
}
