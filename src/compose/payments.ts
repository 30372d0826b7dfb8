import type { OrganizationActors } from "../../actors/organization/actor.ts";
import { AutoReplenish } from "../payments/auto-replenish.ts";
import type { PaymentProcessor } from "../payments/interface.ts";
import { PaymentMethods } from "../payments/payment-methods.ts";
import { Payments } from "../payments/payments.ts";
import { StripeEvents } from "../payments/stripe-events.ts";
import { createStripe, StripeProcessor } from "../payments/stripe-processor.ts";
import { TestProcessor } from "../payments/test-processor.ts";
import type { Base } from "./base.ts";

export interface PaymentParts {
  readonly payments: Payments;
  readonly methods: PaymentMethods;
  readonly replenish: AutoReplenish;
  /** Undefined: nothing is reported here. */
  readonly stripeEvents: StripeEvents | undefined;
}

/** Stripe where its key is set, and else the test processor. */
export function composePayments(
  base: Base,
  world: { readonly organizations: OrganizationActors },
): PaymentParts {
  const { config, clock } = base;
  const processor: PaymentProcessor =
    config.stripe === undefined
      ? new TestProcessor()
      : new StripeProcessor(createStripe(config.stripe), () => clock.nowMs());
  const methods = new PaymentMethods({ ...base, processor });
  const payments = new Payments({ ...base, ...world, processor, methods });
  const replenish = new AutoReplenish({ ...base, payments, methods });
  const webhookSecret = config.stripe?.webhookSecret;
  const stripeEvents =
    webhookSecret === undefined
      ? undefined
      : new StripeEvents({ ...base, webhookSecret, payments, methods });
  return { methods, payments, replenish, stripeEvents };
}
