import { Type } from "typebox";
import { jsonResponse } from "../http/error-response.ts";
import { type KeyAccess, nullable, type RouteDefinition } from "../http/route.ts";
import { feePercentOf, PLANS, planOf } from "../lib/plans.ts";
import { isoTime } from "../lib/utc-time.ts";
import { MAX_PAYMENT_USD, MIN_PAYMENT_USD } from "../payments/interface.ts";
import type { PlanBilling } from "../payments/plan-billing.ts";
import { ENTITIES } from "../screening/personal-data.ts";
import type { DashboardSessions } from "./sessions.ts";

/** What this gateway offers its organizations. */
export interface Offers {
  readonly planBilling: Pick<PlanBilling, "sellsPlans" | "price">;
  /** Undefined: no payments are taken. */
  readonly paymentProcessor: "stripe" | "test" | undefined;
  /** Those that take keys of organizations. */
  readonly providers: readonly { readonly id: string; readonly needsBaseUrl: boolean }[];
  readonly canModerate: boolean;
}

interface SettingsDependencies {
  readonly sessions: Pick<DashboardSessions, "signInKeys">;
  readonly offers: Offers;
}

const choices = Type.Object({
  payments: Type.Object({
    processor: nullable(Type.Enum(["stripe", "test"], { description: "null: takes no payments" })),
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
      fee_percent: Type.Number({ description: "Unless the organization has a fee of its own" }),
      file_quota_bytes: Type.Integer(),
      is_paid: Type.Boolean({ description: "Billed by its price, on top of the fee" }),
      price: nullable(price),
    }),
  ),
});

const signInKeyList = Type.Object({
  data: Type.Array(
    Type.Object({
      id: Type.String(),
      name: Type.String(),
      key_prefix: Type.String(),
      is_active: Type.Boolean(),
      expires_at: nullable(Type.String()),
      created_at: Type.String(),
      sessions: Type.Integer({ description: "Open ones" }),
      last_seen_at: nullable(Type.String({ description: "Of its open sessions" })),
    }),
  ),
});

const tag = "Dashboard";
const access: KeyAccess = { kind: "administration", scope: "usage:read" };

/** What the page of settings offers and shows besides what the API has. */
export function settingsRoutes(
  path: string,
  { sessions, offers }: SettingsDependencies,
): RouteDefinition[] {
  return [
    {
      method: "GET",
      path: `${path}/choices`,
      tag,
      summary: "What settings can be",
      access,
      responses: { 200: { description: "The choices", schema: choices } },
      handle: () =>
        jsonResponse({
          payments: {
            processor: offers.paymentProcessor ?? null,
            min_usd: MIN_PAYMENT_USD,
            max_usd: MAX_PAYMENT_USD,
          },
          providers: offers.providers.map(({ id, needsBaseUrl }) => ({
            id,
            needs_base_url: needsBaseUrl,
          })),
          guardrails: { entities: ENTITIES, can_moderate: offers.canModerate },
        }),
    },
    {
      method: "GET",
      path: `${path}/plans`,
      tag,
      summary: "Plans that organizations choose among",
      access,
      responses: { 200: { description: "The plans", schema: planList } },
      handle: async () => jsonResponse({ data: await plansOf(offers) }),
    },
    {
      method: "GET",
      path: `${path}/sign-in-keys`,
      tag,
      summary: "Keys that can sign in, with their open sessions",
      access,
      responses: { 200: { description: "The newest first", schema: signInKeyList } },
      async handle({ caller }) {
        const keys = await sessions.signInKeys(caller.key.organizationId);
        return jsonResponse({
          data: keys.map((key) => ({
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
  ];
}

async function plansOf({ planBilling, paymentProcessor }: Offers) {
  const isSold = planBilling.sellsPlans && paymentProcessor !== undefined;
  const stated = await planBilling.price();
  const paid = stated && {
    amount: stated.amount,
    currency: stated.currency,
    interval: stated.interval,
    interval_count: stated.intervalCount,
  };
  return PLANS.flatMap((plan) => {
    const { chosenBy, fileQuotaBytes } = planOf(plan);
    const isPaid = chosenBy === "paid";
    if (chosenBy === "operator" || (isPaid && !isSold)) return [];
    return {
      plan,
      fee_percent: feePercentOf({ plan, feeBasisPoints: null }),
      file_quota_bytes: fileQuotaBytes,
      is_paid: isPaid,
      price: isPaid ? (paid ?? null) : null,
    };
  });
}
