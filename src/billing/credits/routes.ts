import { Type } from "typebox";
import type { Database } from "../../../db/client.ts";
import { creditTotals } from "../../../db/queries/credit-list.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { type Access, nullable, type RouteDefinition, route } from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { hasAtMostDecimals, nanoFromUsd, usdNumber } from "../../lib/money.ts";
import {
  type AutoReplenish,
  type ReplenishChange,
  replenishStatus,
} from "../payments/auto-replenish.ts";
import { MAX_PAYMENT_DECIMALS, MAX_PAYMENT_USD, MIN_PAYMENT_USD } from "../payments/interface.ts";

const balance = Type.Object(
  {
    balance_usd: Type.Number(),
    lifetime_spend_usd: Type.Number(),
    auto_replenish: Type.Boolean(),
    replenish_amount_usd: Type.Number(),
    replenish_threshold_usd: Type.Number(),
    replenish_payment_method_id: nullable(
      Type.String({ description: "If null, the default payment method pays." }),
    ),
    replenish_status: Type.Enum(["off", "active", "retrying", "stopped"], {
      description:
        "`retrying` if the last payment was declined. `stopped` if three in a row were declined.",
    }),
  },
  { title: "CreditBalance" },
);

const MAX_THRESHOLD_USD = 1_000_000;
const MAX_ID_CHARACTERS = 128;

const changeBody = Type.Object(
  {
    auto_replenish: Type.Optional(Type.Boolean()),
    replenish_threshold_usd: Type.Optional(
      Type.Number({
        minimum: 0,
        maximum: MAX_THRESHOLD_USD,
        description:
          "The balance is topped up when it falls below this amount; at most 2 decimals.",
      }),
    ),
    replenish_amount_usd: Type.Optional(
      Type.Number({
        minimum: MIN_PAYMENT_USD,
        maximum: MAX_PAYMENT_USD,
        description: "At most 2 decimals.",
      }),
    ),
    payment_method_id: Type.Optional(
      nullable(
        Type.String({
          minLength: 1,
          maxLength: MAX_ID_CHARACTERS,
          description: "If null, the default payment method pays.",
        }),
      ),
    ),
  },
  {
    additionalProperties: false,
  },
);

const access: Access = { kind: "administration", scope: "billing:read" };
const tag = "Credits";

interface CreditServices {
  readonly sql: Database;
  readonly replenish: AutoReplenish;
}

/** Returns the routes of the credit balance (spec 4.9). */
export function creditRoutes(services: CreditServices): RouteDefinition[] {
  const { replenish } = services;
  return [
    {
      method: "GET",
      path: "/v1/credits",
      tag,
      operationId: "credits.retrieve",
      summary: "Retrieve the credit balance",
      access,
      responses: { 200: { description: "The balance.", schema: balance } },
      handle: ({ caller: { key } }) => balanceResponse(services, key.organizationId),
    },
    route({
      method: "PATCH",
      path: "/v1/credits",
      tag,
      operationId: "credits.update",
      summary: "Set up automatic top-ups",
      access: { kind: "administration", scope: "billing:write" },
      body: changeBody,
      responses: {
        200: { description: "The balance and the changed settings.", schema: balance },
        402: { description: "The organization has no default payment method." },
        404: { description: "The organization has no such payment method." },
      },
      async handle({ caller: { key }, body, author }) {
        const change = replenishChangeOf(body);
        await replenish.change(key.organizationId, change, author);
        return balanceResponse(services, key.organizationId);
      },
    }),
  ];
}

async function balanceResponse(
  { sql, replenish }: CreditServices,
  organizationId: string,
): Promise<Response> {
  const [totals, settings] = await Promise.all([
    creditTotals(sql, organizationId),
    replenish.find(organizationId),
  ]);
  return jsonResponse({
    balance_usd: usdNumber(totals?.balanceNano ?? 0n),
    lifetime_spend_usd: usdNumber(totals?.lifetimeSpendNano ?? 0n),
    auto_replenish: settings.isEnabled,
    replenish_amount_usd: usdNumber(settings.amountNano),
    replenish_threshold_usd: usdNumber(settings.thresholdNano),
    replenish_payment_method_id: settings.methodId,
    replenish_status: replenishStatus(settings),
  });
}

interface ChangeBody {
  readonly auto_replenish?: boolean;
  readonly replenish_threshold_usd?: number;
  readonly replenish_amount_usd?: number;
  readonly payment_method_id?: string | null;
}

/** Returns the change that the body describes. Throws 400 for an amount with too many decimals. */
function replenishChangeOf(body: ChangeBody): ReplenishChange {
  const { auto_replenish: isEnabled, payment_method_id: methodId } = body;
  const nano = (field: "replenish_threshold_usd" | "replenish_amount_usd") => {
    const usd = body[field];
    if (usd === undefined || hasAtMostDecimals(usd, MAX_PAYMENT_DECIMALS)) {
      return usd === undefined ? undefined : nanoFromUsd(usd);
    }
    const message = `${field} may have at most ${MAX_PAYMENT_DECIMALS} decimals.`;
    throw new GatewayError("invalid_body", message, { param: field });
  };
  const thresholdNano = nano("replenish_threshold_usd");
  const amountNano = nano("replenish_amount_usd");
  return {
    ...(isEnabled !== undefined && { isEnabled }),
    ...(thresholdNano !== undefined && { thresholdNano }),
    ...(amountNano !== undefined && { amountNano }),
    ...(methodId !== undefined && { methodId }),
  };
}
