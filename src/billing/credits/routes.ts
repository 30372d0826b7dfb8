import { type TProperties, Type } from "typebox";
import type { Database } from "../../../db/client.ts";
import {
  creditTotals,
  type ListedTransaction,
  listTransactions,
} from "../../../db/queries/credit-list.ts";
import { receiptsOf } from "../../../db/queries/payment-intents.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { shownKeyId } from "../../http/limited-keys.ts";
import { type Access, nullable, type RouteDefinition, route } from "../../http/route.ts";
import { timeSpan, timeSpanFields } from "../../http/time-span.ts";
import { GatewayError } from "../../lib/errors.ts";
import { hasAtMostDecimals, nanoFromUsd, usdNumber } from "../../lib/money.ts";
import { COUNTED_UNITS } from "../../lib/units.ts";
import { shownQuantities } from "../../lib/usage.ts";
import { isoTime } from "../../lib/utc-time.ts";
import {
  type AutoReplenish,
  type ReplenishChange,
  replenishStatus,
} from "../payments/auto-replenish.ts";
import { MAX_PAYMENT_DECIMALS, MAX_PAYMENT_USD, MIN_PAYMENT_USD } from "../payments/interface.ts";

const MAX_PAGE = 200;
const transactionType = Type.Enum(["topup", "usage", "refund", "adjustment"], {
  title: "TransactionType",
});
const ofUsage = { description: "Only for transactions of type usage." };

const transactionsQuery = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: 50 })),
    offset: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
    type: Type.Optional(transactionType),
    key_id: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 64,
        description: "Only charges of this key and refunds of these charges.",
      }),
    ),
    model: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 1_024,
        description: "Only charges for this model, by the model id that transactions show.",
      }),
    ),
    ...timeSpanFields,
  },
  { additionalProperties: false },
);

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

const nullableInteger = (description: string) =>
  Type.Union([Type.Integer(), Type.Null()], { description });
const nullableString = Type.Union([Type.String(), Type.Null()]);
const nullableObject = Type.Union([Type.Object({}), Type.Null()]);

/** Describes a count that responses contain only if it is above zero. */
function usedCount(description: string) {
  return Type.Optional(Type.Integer({ description }));
}

const unitCounts: TProperties = {};
for (const unit of COUNTED_UNITS) {
  const { description } = unit;
  if (description === undefined) continue;
  if ("seconds" in unit) unitCounts[unit.seconds] = Type.Optional(Type.Number({ description }));
  else unitCounts[unit.stored] = usedCount(description);
}

const transactionDetails = Type.Object(
  {
    status: nullableInteger(
      "HTTP status of the response; 499 if the client disconnected, 500 if the gateway died.",
    ),
    latency_ms: nullableInteger("From the request to the end of its response."),
    cached_tokens: nullableInteger("Prompt tokens read from the provider's cache."),
    reasoning_tokens: nullableInteger("Completion tokens that are reasoning."),
    cache_write_tokens: usedCount("Prompt tokens written to the provider's cache."),
    cache_write_1h_tokens: usedCount("Tokens among these that the cache stores for one hour."),
    audio_prompt_tokens: usedCount("Audio prompt tokens that were not read from a cache."),
    image_prompt_tokens: usedCount("Image prompt tokens that were not read from a cache."),
    cached_audio_prompt_tokens: usedCount("Cached audio prompt tokens."),
    cached_image_prompt_tokens: usedCount("Cached image prompt tokens."),
    audio_completion_tokens: usedCount("Audio completion tokens."),
    image_completion_tokens: usedCount("Image completion tokens."),
    ...unitCounts,
    user: nullableString,
    session_id: nullableString,
    trace: nullableObject,
    metadata: nullableObject,
    omitted: Type.Optional(
      Type.Boolean({
        description:
          "True if trace and metadata are omitted because they exceed 1 MB on this page. Request fewer transactions.",
      }),
    ),
  },
  {
    title: "TransactionDetails",
    description:
      "Only for transactions of type usage: the fields that the request recorded, and its outcome.",
  },
);

const transactionList = Type.Object(
  {
    data: Type.Array(
      Type.Object({
        id: Type.String(),
        type: transactionType,
        amount_usd: Type.Number(),
        balance_after_usd: Type.Union([Type.Number(), Type.Null()], {
          description:
            "Null for a limited key, because the balance would reveal the spending of other keys.",
        }),
        description: Type.String(),
        model: Type.Optional(Type.String(ofUsage)),
        request_id: Type.Optional(Type.String(ofUsage)),
        key_id: Type.Optional(Type.Union([Type.String(), Type.Null()], ofUsage)),
        provider: Type.Optional(Type.Union([Type.String(), Type.Null()], ofUsage)),
        prompt_tokens: Type.Optional(Type.Union([Type.Integer(), Type.Null()], ofUsage)),
        completion_tokens: Type.Optional(Type.Union([Type.Integer(), Type.Null()], ofUsage)),
        estimated: Type.Optional(
          Type.Union([Type.Boolean(), Type.Null()], {
            description:
              "Only for transactions of type usage: true if the gateway counted the tokens.",
          }),
        ),
        details: Type.Optional(transactionDetails),
        receipt_url: Type.Optional(
          Type.String({
            description: "Only for top-ups for which the payment processor has a receipt.",
          }),
        ),
        created_at: Type.String(),
      }),
    ),
    total: Type.Integer({
      description:
        "Exact without filters and with `type=usage` alone. With other filters it is exact up to 10,000, or up to 5,000 for a key and a model. Above that it is a lower bound.",
    }),
    has_more: Type.Boolean(),
  },
  { title: "TransactionList" },
);

const access: Access = { kind: "administration", scope: "billing:read" };
const tag = "Credits";
const DEFAULT_PAGE = 50;

interface CreditServices {
  readonly sql: Database;
  readonly replenish: AutoReplenish;
}

/** Returns the routes of the credit balance and its transactions (spec 4.9). */
export function creditRoutes(services: CreditServices): RouteDefinition[] {
  const { sql, replenish } = services;
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
    route({
      method: "GET",
      path: "/v1/credits/transactions",
      tag,
      operationId: "credits.transactions.list",
      summary: "List credit transactions",
      description: "The newest transaction is first.",
      access,
      query: transactionsQuery,
      responses: { 200: { description: "Transactions.", schema: transactionList } },
      async handle(context) {
        const query = context.query;
        const { key } = context.caller;
        const onlyKeyId = shownKeyId(key);
        if (onlyKeyId !== undefined && (query.key_id ?? onlyKeyId) !== onlyKeyId) {
          return jsonResponse({ data: [], total: 0, has_more: false });
        }
        const { transactions, total, hasMore } = await listTransactions(sql, {
          organizationId: key.organizationId,
          type: query.type,
          keyId: query.key_id ?? onlyKeyId,
          model: query.model,
          ...timeSpan(query),
          limit: query.limit ?? DEFAULT_PAGE,
          offset: query.offset ?? 0,
        });
        const topUps = transactions.filter(({ type }) => type === "topup").map(({ id }) => id);
        const receipts = await receiptsOf(sql, key.organizationId, topUps);
        return jsonResponse({
          data: transactions.map((transaction) => {
            const receipt = receipts.get(transaction.id);
            const shape = transactionShape(transaction, onlyKeyId === undefined);
            return receipt === undefined ? shape : { ...shape, receipt_url: receipt };
          }),
          total,
          has_more: hasMore,
        });
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

function transactionShape(transaction: ListedTransaction, showsBalance: boolean) {
  const isUsage = transaction.type === "usage";
  return {
    id: transaction.id,
    type: transaction.type,
    amount_usd: usdNumber(transaction.amountNano),
    balance_after_usd: showsBalance ? usdNumber(transaction.balanceAfterNano) : null,
    description: transaction.description,
    ...(isUsage && {
      model: transaction.model,
      request_id: transaction.requestId,
      key_id: transaction.keyId,
      provider: transaction.provider,
      prompt_tokens: transaction.promptTokens,
      completion_tokens: transaction.completionTokens,
      estimated: transaction.estimated,
      details: detailsShape(transaction),
    }),
    created_at: isoTime(transaction.createdAtMs),
  };
}

function detailsShape(transaction: ListedTransaction) {
  const { recorded } = transaction;
  return {
    status: transaction.status,
    latency_ms: transaction.latencyMs,
    cached_tokens: transaction.cachedPromptTokens,
    reasoning_tokens: transaction.reasoningTokens,
    ...shownQuantities(transaction.quantities),
    user: transaction.user,
    session_id: transaction.sessionId,
    trace: recorded?.trace ?? null,
    metadata: recorded?.metadata ?? null,
    ...(recorded === undefined && { omitted: true }),
  };
}
