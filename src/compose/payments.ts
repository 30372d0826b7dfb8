import type { OrganizationActors } from "../../actors/organization/actor.ts";
import type { GatewayConfig } from "../config.ts";
import type { Clock } from "../lib/clock.ts";
import { AutoReplenish } from "../payments/auto-replenish.ts";
import type { PaymentProcessor } from "../payments/interface.ts";
import { PaymentMethods } from "../payments/payment-methods.ts";
import { Payments } from "../payments/payments.ts";
import { PlanBilling } from "../payments/plan-billing.ts";
import { type PlanProcessor, TestPlans } from "../payments/plan-processor.ts";
import { StripeEvents } from "../payments/stripe-events.ts";
import { StripePlans } from "../payments/stripe-plans.ts";
import { createStripe, StripeProcessor } from "../payments/stripe-processor.ts";
import { TestProcessor } from "../payments/test-processor.ts";
import type { Base } from "./base.ts";

export interface PaymentParts {
  readonly payments: Payments;
  readonly methods: PaymentMethods;
  readonly replenish: AutoReplenish;
  readonly planBilling: PlanBilling;
  /** Undefined: nothing is reported here. */
  readonly stripeEvents: StripeEvents | undefined;
}

/** Stripe where its key is set, and else the test processor. */
export function composePayments(
  base: Base,
  world: { readonly organizations: OrganizationActors },
): PaymentParts {
  const { config, clock } = base;
  const { processor, plans } = processorsOf(config, clock);
  const methods = new PaymentMethods({ ...base, processor });
  const payments = new Payments({ ...base, ...world, processor, methods });
  const replenish = new AutoReplenish({ ...base, payments, methods });
  const billed = { plans, processorName: processor.name, methods };
  const planBilling = new PlanBilling({ ...base, ...world, ...billed });
  const webhookSecret = config.stripe?.webhookSecret;
  const stripeEvents =
    webhookSecret === undefined
      ? undefined
      : new StripeEvents({ ...base, webhookSecret, payments, methods, planBilling });
  return { methods, payments, replenish, planBilling, stripeEvents };
}

function processorsOf(
  { stripe: access, proPriceNanoUsd }: GatewayConfig,
  clock: Clock,
): { readonly processor: PaymentProcessor; readonly plans: PlanProcessor | undefined } {
  if (access === undefined) {
    const processor = new TestProcessor();
    return { processor, plans: new TestPlans(processor, proPriceNanoUsd, clock) };
  }
  const stripe = createStripe(access);
  const nowMs = () => clock.nowMs();
  const { proPriceId } = access;
  return {
    processor: new StripeProcessor(stripe, nowMs),
    plans: proPriceId === undefined ? undefined : new StripePlans(stripe, proPriceId, nowMs),
  };
}
