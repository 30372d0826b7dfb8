import { Type } from "typebox";
import { jsonResponse } from "../../http/error-response.ts";
import type { RouteDefinition } from "../../http/route.ts";
import type { StripeEvents } from "../payments/stripe-events.ts";

const MAX_EVENT_BYTES = 524_288;

/** Returns the route that receives Stripe's webhook events (contract §7). */
export function stripeRoutes(events: Pick<StripeEvents, "accept">): RouteDefinition[] {
  return [
    {
      method: "POST",
      path: "/v1/billing/stripe/webhook",
      tag: "Billing",
      operationId: "billing.stripe.webhook",
      summary: "Receive a Stripe webhook event",
      description: "The signature of the event replaces an API key.",
      access: { kind: "public" },
      body: Type.Object({}, { additionalProperties: true }),
      allowsUnknownFields: true,
      maxBodyBytes: MAX_EVENT_BYTES,
      responses: {
        200: {
          description: "The event was processed, or does not concern the gateway.",
          schema: Type.Object({ received: Type.Literal(true) }),
        },
      },
      async handle({ request, bodyText }) {
        await events.accept(bodyText, request.headers.get("stripe-signature"));
        return jsonResponse({ received: true });
      },
    },
  ];
}
