import { Type } from "typebox";
import { MAX_PAYMENT_USD, MIN_PAYMENT_USD } from "../billing/payments/interface.ts";
import type { PlanBilling } from "../billing/payments/plan-billing.ts";
import { jsonResponse } from "../http/error-response.ts";
import { type KeyAccess, nullable, type RouteDefinition, route } from "../http/route.ts";
import { ENTITIES } from "../inference/guardrails/screening/personal-data.ts";
import { feePercentOf, PLANS, planOf } from "../lib/plans.ts";
import { isoTime } from "../lib/utc-time.ts";
import { PROVIDER_TYPES } from "../platform/config/provider-types.ts";
import type { DashboardSessions } from "./sessions.ts";

/** Plans, payments and providers that this gateway offers its organizations. */
export interface Offers {
  readonly planBilling: Pick<PlanBilling, "sellsPlans" | "price">;
  /** Undefined if the gateway accepts no payments. */
  readonly paymentProcessor: "stripe" | "test" | undefined;
  /** Returns the providers that accept keys of an organization. */
  providersFor(
    organizationId: string,
  ): readonly { readonly id: string; readonly needsBaseUrl: boolean }[];
  readonly canModerate: boolean;
}

interface SettingsDependencies {
  readonly sessions: Pick<DashboardSessions, "signInKeys" | "signedInSubjects" | "endSessionsOf">;
  readonly offers: Offers;
}

const choices = Type.Object({
  payments: Type.Object({
    processor: nullable(
      Type.Enum(["stripe", "test"], { description: "Null if the gateway accepts no payments" }),
    ),
    min_usd: Type.Number(),
    max_usd: Type.Number(),
  }),
  providers: Type.Array(Type.Object({ id: Type.String(), needs_base_url: Type.Boolean() })),
  guardrails: Type.Object({
    entities: Type.Array(Type.String()),
    can_moderate: Type.Boolean(),
  }),
});

const price = Type.Object({
  amount: Type.Number({ description: "In whole units of the currency" }),
  currency: Type.String(),
  interval: Type.String(),
  interval_count: Type.Integer(),
});

const planList = Type.Object({
  data: Type.Array(
    Type.Object({
      plan: Type.Enum([...PLANS]),
      fee_percent: Type.Number({
        description: "Fee of the plan. An individual fee of the organization replaces it",
      }),
      file_quota_bytes: Type.Integer(),
      is_paid: Type.Boolean({ description: "Billed at its price in addition to the fee" }),
    }),
  ),
});

const planPrice = Type.Object({
  price: nullable(price),
});

const signInList = Type.Object({
  people: Type.Array(
    Type.Object({
      id: Type.String(),
      name: Type.String(),
      sessions: Type.Integer({ description: "Number of open sessions" }),
      last_seen_at: Type.String(),
    }),
    { description: "Users that have signed in through the identity provider" },
  ),
  keys: Type.Array(
    Type.Object({
      id: Type.String(),
      name: Type.String(),
      key_prefix: Type.String(),
      is_active: Type.Boolean(),
      expires_at: nullable(Type.String()),
      created_at: Type.String(),
      sessions: Type.Integer({ description: "Number of open sessions" }),
      last_seen_at: nullable(Type.String({ description: "Last use of its open sessions" })),
    }),
  ),
});

const tag = "Dashboard";
const billing: KeyAccess = { kind: "administration", scope: "billing:read" };
/** The scope of `GET /v1/keys`, because sign-ins belong to keys. Developers, whose role is self-only, have no access. */
const signIns: KeyAccess = {
  kind: "administration",
  scope: "keys:manage",
  isForManagement: true,
};

/** Returns the routes of the settings page that the API does not have. */
export function settingsRoutes(
  path: string,
  { sessions, offers }: SettingsDependencies,
): RouteDefinition[] {
  return [
    {
      method: "GET",
      path: `${path}/choices`,
      tag,
      summary: "List possible settings",
      access: { kind: "self" },
      responses: { 200: { description: "The choices", schema: choices } },
      handle: ({ caller }) =>
        jsonResponse({
          payments: {
            processor: offers.paymentProcessor ?? null,
            min_usd: MIN_PAYMENT_USD,
            max_usd: MAX_PAYMENT_USD,
          },
          providers: offers.providersFor(caller.key.organizationId).map(({ id, needsBaseUrl }) => ({
            id,
            needs_base_url: needsBaseUrl,
          })),
          guardrails: { entities: ENTITIES, can_moderate: offers.canModerate },
        }),
    },
    {
      method: "GET",
      path: `${path}/provider-types`,
      tag,
      summary: "List the types of providers",
      access: { kind: "operator" },
      responses: {
        200: {
          description: "The types",
          schema: Type.Object({ types: Type.Array(Type.String()) }),
        },
      },
      handle: () => jsonResponse({ types: Object.keys(PROVIDER_TYPES).toSorted() }),
    },
    {
      method: "GET",
      path: `${path}/plans`,
      tag,
      summary: "List the plans that organizations can choose",
      access: billing,
      responses: { 200: { description: "The plans", schema: planList } },
      handle: () => jsonResponse({ data: plansOf(offers) }),
    },
    {
      method: "GET",
      path: `${path}/plan-price`,
      tag,
      summary: "Get the price of the paid plan from the payment processor",
      access: billing,
      asksOtherServers: true,
      responses: { 200: { description: "The price", schema: planPrice } },
      handle: async () => jsonResponse({ price: await priceOf(offers) }),
    },
    {
      method: "GET",
      path: `${path}/sign-ins`,
      tag,
      summary: "List keys and users with their open sessions",
      access: signIns,
      responses: { 200: { description: "The newest keys first", schema: signInList } },
      async handle({ caller }) {
        const { organizationId } = caller.key;
        const [keys, people] = await Promise.all([
          sessions.signInKeys(organizationId),
          sessions.signedInSubjects(organizationId),
        ]);
        return jsonResponse({
          people: people.map(({ id, name, sessions: open, lastSeenAtMs }) => ({
            ...{ id, name, sessions: open, last_seen_at: isoTime(lastSeenAtMs) },
          })),
          keys: keys.map((key) => ({
            id: key.id,
            name: key.name,
            key_prefix: key.keyPrefix,
            is_active: key.isActive,
            expires_at: key.expiresAtMs === null ? null : isoTime(key.expiresAtMs),
            created_at: isoTime(key.createdAtMs),
            sessions: key.sessions,
            last_seen_at: key.lastSeenAtMs === null ? null : isoTime(key.lastSeenAtMs),
          })),
        });
      },
    },
    route({
      method: "DELETE",
      path: `${path}/sign-ins/:id`,
      tag,
      summary: "End all other sessions of a key or user",
      access: signIns,
      responses: {
        200: {
          description: "The number of ended sessions",
          schema: Type.Object({ ended: Type.Integer() }),
        },
        404: { description: "No key with this id exists, and no user with this id is signed in" },
      },
      handle: async (context) =>
        jsonResponse({ ended: await sessions.endSessionsOf(context.params.id, context) }),
    }),
  ];
}

/**
 * Returns the price of the paid plan. It has its own route, because a payment processor that does not answer
 * would delay the plans.
 */
async function priceOf({ planBilling }: Offers) {
  const stated = await planBilling.price();
  if (stated === undefined) return null;
  const { amount, currency, interval, intervalCount } = stated;
  return { amount, currency, interval, interval_count: intervalCount };
}

function plansOf({ planBilling, paymentProcessor }: Offers) {
  const isSold = planBilling.sellsPlans && paymentProcessor !== undefined;
  return PLANS.flatMap((plan) => {
    const { chosenBy, fileQuotaBytes } = planOf(plan);
    const isPaid = chosenBy === "paid";
    if (chosenBy === "operator" || (isPaid && !isSold)) return [];
    return {
      plan,
      fee_percent: feePercentOf({ plan, feeBasisPoints: null }),
      file_quota_bytes: fileQuotaBytes,
      is_paid: isPaid,
    };
  });
}
