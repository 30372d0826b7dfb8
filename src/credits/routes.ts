import { Type } from "typebox";
import type { Database } from "../../db/client.ts";
import {
  creditTotals,
  type ListedTransaction,
  listTransactions,
} from "../../db/queries/credit-list.ts";
import { jsonResponse } from "../http/error-response.ts";
import type { Access, RouteDefinition } from "../http/route.ts";
import { type TimeSpanQuery, timeSpan, timeSpanFields } from "../http/time-span.ts";
import { isLimited } from "../lib/api-key-record.ts";
import { usdNumber } from "../lib/money.ts";
import { shownQuantities } from "../lib/usage.ts";
import { isoTime } from "../lib/utc-time.ts";

const MAX_PAGE = 200;
const transactionType = Type.Enum(["topup", "usage", "refund", "adjustment"]);
const ofUsage = { description: "Of usage only" };

const transactionsQuery = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: 50 })),
    offset: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
    type: Type.Optional(transactionType),
    key_id: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 64,
        description: "Only the charges of this key, and what of them was given back",
      }),
    ),
    model: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 1_024,
        description: "Only the charges for this model, by its id as transactions show it",
      }),
    ),
    ...timeSpanFields,
  },
  { additionalProperties: false },
);

const balance = Type.Object({
  balance_usd: Type.Number(),
  lifetime_spend_usd: Type.Number(),
  auto_replenish: Type.Boolean(),
  replenish_amount_usd: Type.Number(),
  replenish_threshold_usd: Type.Number(),
});

const nullableInteger = (description: string) =>
  Type.Union([Type.Integer(), Type.Null()], { description });
const nullableString = Type.Union([Type.String(), Type.Null()]);
const nullableObject = Type.Union([Type.Object({}), Type.Null()]);

/** Present where it is above zero. */
function usedCount(description: string) {
  return Type.Optional(Type.Integer({ description }));
}

const transactionDetails = Type.Object(
  {
    status: nullableInteger("HTTP status of the answer; 499 where the client went away"),
    latency_ms: nullableInteger("From the request to the end of its answer"),
    cached_tokens: nullableInteger("Prompt tokens read from the provider's cache"),
    reasoning_tokens: nullableInteger("Completion tokens that are reasoning"),
    cache_write_tokens: usedCount("Prompt tokens written to the provider's cache"),
    cache_write_1h_tokens: usedCount("Of these, tokens that the cache keeps for an hour"),
    audio_prompt_tokens: usedCount("Prompt tokens of sound that were not read from a cache"),
    image_prompt_tokens: usedCount("Prompt tokens of images that were not read from a cache"),
    cached_audio_prompt_tokens: usedCount("Cached prompt tokens of sound"),
    cached_image_prompt_tokens: usedCount("Cached prompt tokens of images"),
    audio_completion_tokens: usedCount("Completion tokens of sound"),
    image_completion_tokens: usedCount("Completion tokens of images"),
    images: usedCount("Images that were made"),
    characters: usedCount("Characters that were spoken"),
    seconds: Type.Optional(Type.Number({ description: "Seconds of sound" })),
    speakers_seconds: Type.Optional(
      Type.Number({ description: "Of these, seconds whose speakers were distinguished" }),
    ),
    web_searches: usedCount("Searches of the web"),
    file_searches: usedCount("Searches of files"),
    search_units: usedCount("Search units of rankings"),
    user: nullableString,
    session_id: nullableString,
    trace: nullableObject,
    metadata: nullableObject,
    omitted: Type.Optional(
      Type.Boolean({
        description:
          "true where trace and metadata are left out because those of the page take more than 1 MB; ask for fewer transactions",
      }),
    ),
  },
  { description: "Of usage only: what the request recorded, and how it ended" },
);

const transactionList = Type.Object({
  data: Type.Array(
    Type.Object({
      id: Type.String(),
      type: transactionType,
      amount_usd: Type.Number(),
      balance_after_usd: Type.Number(),
      description: Type.String(),
      model: Type.Optional(Type.String(ofUsage)),
      request_id: Type.Optional(Type.String(ofUsage)),
      key_id: Type.Optional(Type.Union([Type.String(), Type.Null()], ofUsage)),
      provider: Type.Optional(Type.Union([Type.String(), Type.Null()], ofUsage)),
      prompt_tokens: Type.Optional(Type.Union([Type.Integer(), Type.Null()], ofUsage)),
      completion_tokens: Type.Optional(Type.Union([Type.Integer(), Type.Null()], ofUsage)),
      estimated: Type.Optional(
        Type.Union([Type.Boolean(), Type.Null()], {
          description: "Of usage only: its tokens were counted by the gateway",
        }),
      ),
      details: Type.Optional(transactionDetails),
      created_at: Type.String(),
    }),
  ),
  total: Type.Integer({
    description:
      "Exact without filters, with `type=usage` alone, and up to 10,000; above that, of a filtered list, at least so many",
  }),
  has_more: Type.Boolean(),
});

const access: Access = { kind: "administration", scope: "billing:read" };
const tag = "Credits";
const DEFAULT_PAGE = 50;

interface TransactionsQuery extends TimeSpanQuery {
  readonly limit?: number;
  readonly offset?: number;
  readonly type?: string;
  readonly key_id?: string;
  readonly model?: string;
}

/** Balance and transactions (spec 4.9). */
export function creditRoutes(sql: Database): RouteDefinition[] {
  return [
    {
      method: "GET",
      path: "/v1/credits",
      tag,
      summary: "Retrieve the credit balance",
      access,
      responses: { 200: { description: "The balance", schema: balance } },
      async handle(context) {
        const totals = await creditTotals(sql, context.caller.key.organizationId);
        return jsonResponse({
          balance_usd: usdNumber(totals?.balanceNano ?? 0n),
          lifetime_spend_usd: usdNumber(totals?.lifetimeSpendNano ?? 0n),
          auto_replenish: false,
          replenish_amount_usd: 0,
          replenish_threshold_usd: 0,
        });
      },
    },
    {
      method: "GET",
      path: "/v1/credits/transactions",
      tag,
      summary: "List credit transactions, newest first",
      access,
      query: transactionsQuery,
      responses: { 200: { description: "Transactions", schema: transactionList } },
      async handle(context) {
        const query = context.query as TransactionsQuery;
        const { key } = context.caller;
        const { transactions, total, hasMore } = await listTransactions(sql, {
          organizationId: key.organizationId,
          type: query.type,
          keyId: query.key_id,
          model: query.model,
          ofKeyId: key.kind === "secret" && isLimited(key) ? key.id : undefined,
          ...timeSpan(query),
          limit: query.limit ?? DEFAULT_PAGE,
          offset: query.offset ?? 0,
        });
        return jsonResponse({
          data: transactions.map(transactionShape),
          total,
          has_more: hasMore,
        });
      },
    },
  ];
}

function transactionShape(transaction: ListedTransaction) {
  const isUsage = transaction.type === "usage";
  return {
    id: transaction.id,
    type: transaction.type,
    amount_usd: usdNumber(transaction.amountNano),
    balance_after_usd: usdNumber(transaction.balanceAfterNano),
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
