import { Type } from "typebox";
import { jsonResponse } from "../http/error-response.ts";
import { nullable, type RouteDefinition } from "../http/route.ts";
import { usdNumber } from "../lib/money.ts";
import { PLANS, type PlanName } from "../lib/plans.ts";
import { isoTime } from "../lib/utc-time.ts";
import type { Subscription, Subscriptions } from "./subscriptions.ts";

const subscription = Type.Object({
  plan: Type.Enum([...PLANS]),
  platform_fee_percent: Type.Number({ description: "Fee on top of provider cost" }),
  billing_period: Type.Enum(["monthly"]),
  current_period_start: Type.String(),
  current_period_end: Type.String({ description: "The first moment that is not in the period" }),
  usage_this_period_usd: Type.Number({ description: "Sum of the charges since its start" }),
  payment_method: nullable(
    Type.Object({ type: Type.String(), last4: Type.String(), brand: Type.String() }),
  ),
});

const choiceBody = Type.Object(
  { plan: Type.Enum([...PLANS]) },
  { additionalProperties: false, examples: [{ plan: "byok" }] },
);

const tag = "Billing";
const path = "/v1/billing/subscription";

/** The organization's plan (spec 2.11). */
export function subscriptionRoutes(subscriptions: Subscriptions): RouteDefinition[] {
  return [
    {
      method: "GET",
      path,
      tag,
      summary: "Retrieve the plan, its fee and its period",
      access: { kind: "administration", scope: "billing:read" },
      responses: { 200: { description: "The subscription", schema: subscription } },
      async handle({ caller: { key } }) {
        return jsonResponse(subscriptionShape(await subscriptions.find(key.organizationId)));
      },
    },
    {
      method: "POST",
      path,
      tag,
      summary: "Choose another plan",
      access: { kind: "administration", scope: "billing:write" },
      body: choiceBody,
      responses: {
        200: { description: "The subscription as it now stands", schema: subscription },
        403: { description: "Only the gateway's operator may make this change" },
      },
      async handle({ caller: { key }, body }) {
        const { plan } = body as { plan: PlanName };
        return jsonResponse(
          subscriptionShape(await subscriptions.choose(key.organizationId, plan)),
        );
      },
    },
  ];
}

function subscriptionShape(found: Subscription) {
  return {
    plan: found.plan,
    platform_fee_percent: found.feePercent,
    billing_period: found.billingPeriod,
    current_period_start: isoTime(found.periodStartMs),
    current_period_end: isoTime(found.periodEndMs),
    usage_this_period_usd: usdNumber(found.usageNano),
    payment_method: null,
  };
}
