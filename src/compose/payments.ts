import type { OrganizationActors } from "../../actors/organization/actor.ts";
import type { PaymentProcessor } from "../payments/interface.ts";
import { PaymentMethods } from "../payments/payment-methods.ts";
import { Payments } from "../payments/payments.ts";
import { createStripe, StripeProcessor } from "../payments/stripe-processor.ts";
import { TestProcessor } from "../payments/test-processor.ts";
import type { Base } from "./base.ts";

export interface PaymentParts {
  readonly payments: Payments;
  readonly methods: PaymentMethods;
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
  return { methods, payments: new Payments({ ...base, ...world, processor, methods }) };
}
