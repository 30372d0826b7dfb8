import { Type } from "typebox";
import { jsonResponse } from "../../http/error-response.ts";
import { nullable, type RouteDefinition, route } from "../../http/route.ts";
import { usdNumber } from "../../lib/money.ts";
import { PLANS } from "../../lib/plans.ts";
import { isoTime } from "../../lib/utc-time.ts";
import type { Subscription, Subscriptions } from "./subscriptions.ts";

const subscription = Type.Object(
  {
    plan: Type.Enum([...PLANS]),
    platform_fee_percent: Type.Number({ description: "Fee on top of provider cost." }),
    billing_period: Type.Enum(["monthly"]),
    current_period_start: Type.String(),
    current_period_end: Type.String({ description: "End of the period, exclusive." }),
    usage_this_period_usd: Type.Number({
      description: "Total charged since the start of the period.",
    }),
    payment_method: nullable(
      Type.Object(
        { type: Type.String(), last4: nullable(Type.String()), brand: nullable(Type.String()) },
        { description: "The default payment method." },
      ),
    ),
    next_plan: nullable(
      Type.String({ description: "The plan after the current period; null: the same plan." }),
    ),
    payment_status: nullable(
      Type.Enum(["pending", "open", "active", "unpaid", "ending"], {
        description:
          "Payment status of a paid plan; null if no plan is billed. `ending`: the operator has chosen another plan.",
      }),
    ),
    payment_url: nullable(
      Type.String({ description: "The page on which an open invoice can be paid." }),
    ),
    invoice_url: nullable(Type.String({ description: "The latest invoice of a paid plan." })),
  },
  { title: "Subscription" },
);

const choiceBody = Type.Object({ plan: Type.Enum([...PLANS]) }, { additionalProperties: false });

const tag = "Billing";
const path = "/v1/billing/subscription";

/** Returns the routes of the organization's plan (spec 2.11). */
export function subscriptionRoutes(subscriptions: Subscriptions): RouteDefinition[] {
  return [
    {
      method: "GET",
      path,
      tag,
      operationId: "billing.subscription.retrieve",
      summary: "Retrieve the plan, its fee and its period",
      access: { kind: "administration", scope: "billing:read" },
      responses: { 200: { description: "The subscription.", schema: subscription } },
      async handle({ caller: { key } }) {
        return jsonResponse(subscriptionShape(await subscriptions.find(key.organizationId)));
      },
    },
    route({
      method: "POST",
      path,
      tag,
      operationId: "billing.subscription.update",
      summary: "Choose another plan",
      access: { kind: "administration", scope: "billing:write" },
      body: choiceBody,
      responses: {
        200: { description: "The changed subscription.", schema: subscription },
        402: { description: "The paid plan is not paid." },
        403: { description: "Only the gateway's operator can make this change." },
        408: {
          description:
            "The outcome of the payment is not known yet; the plan takes effect when it is paid.",
        },
        409: { description: "The subscription is being changed at the moment." },
        502: { description: "The payment processor could not be reached." },
      },
      async handle(context) {
        const { plan } = context.body;
        const { key } = context.caller;
        // The payment processor can take longer than an idle connection stays open.
        const closeWhenIdle = context.keepOpen();
        try {
          const chosen = await subscriptions.choose(key.organizationId, plan, context.author);
          return jsonResponse(subscriptionShape(chosen));
        } finally {
          closeWhenIdle();
        }
      },
    }),
  ];
}

function subscriptionShape(current: Subscription) {
  const { method, billed } = current;
  const isOpen = billed?.state === "open" || billed?.state === "unpaid";
  return {
    plan: current.plan,
    platform_fee_percent: current.feePercent,
    billing_period: current.billingPeriod,
    current_period_start: isoTime(current.periodStartMs),
    current_period_end: isoTime(current.periodEndMs),
    usage_this_period_usd: usdNumber(current.usageNano),
    payment_method: method ? { type: method.type, last4: method.last4, brand: method.brand } : null,
    next_plan: billed?.nextPlan ?? null,
    payment_status: billed?.state ?? null,
    payment_url: isOpen ? (billed.invoiceUrl ?? null) : null,
    invoice_url: billed?.invoiceUrl ?? null,
  };
}
