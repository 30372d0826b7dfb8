import { type TProperties, Type } from "typebox";
import type { Database } from "../../../db/client.ts";
import {
  exportTransactions,
  type ListedTransaction,
  listTransactions,
  type TransactionFilter,
} from "../../../db/queries/credit-list.ts";
import type { KeyNames } from "../../../db/queries/object-names.ts";
import {
  findTransactionPayments,
  type TransactionPayment,
} from "../../../db/queries/payment-list.ts";
import {
  type CsvExports,
  type CsvRow,
  csvResponse,
  exportTooLong,
  MAX_EXPORT_ROWS,
} from "../../http/csv.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { shownKeyId } from "../../http/limited-keys.ts";
import {
  type Access,
  nullable,
  type RequestContext,
  type RouteDefinition,
  route,
} from "../../http/route.ts";
import { timeSpan, timeSpanFields } from "../../http/time-span.ts";
import type { ApiKeyRecord } from "../../lib/api-key-record.ts";
import { usdNumber } from "../../lib/money.ts";
import { KIND_NAMES } from "../../lib/transaction-kinds.ts";
import { COUNTED_UNITS } from "../../lib/units.ts";
import { shownQuantities } from "../../lib/usage.ts";
import { isoTime } from "../../lib/utc-time.ts";
import {
  exportedKeyNames,
  formatField,
  isPage,
  KEY_NAME_COLUMNS,
  keyNameCells,
} from "../export-columns.ts";

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
    search: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 256,
        description:
          "The id of a transaction, request or payment, or a part of the description of a transaction that is no charge. Descriptions are searched in the newest 5,000 transactions of each type.",
      }),
    ),
    ...timeSpanFields,
    format: formatField,
  },
  { additionalProperties: false },
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
        kind: Type.Enum([...KIND_NAMES], {
          title: "TransactionKind",
          description: "The type, divided by the cause.",
        }),
        amount_usd: Type.Number(),
        fee_usd: Type.Optional(
          nullable(
            Type.Number({
              description:
                "Only for transactions of type usage: the plan's fee within the amount, positive. Null if it was not recorded.",
            }),
          ),
        ),
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
        refunded_request_id: Type.Optional(
          Type.String({
            description:
              "Only for refunds: the request whose charge was given back, if it is known.",
          }),
        ),
        payment: Type.Optional(
          Type.Object(
            {
              id: Type.String(),
              method: nullable(
                Type.Object({ brand: nullable(Type.String()), last4: nullable(Type.String()) }),
              ),
            },
            {
              title: "TransactionPayment",
              description: "The payment that was credited, refunded to its card, or disputed.",
            },
          ),
        ),
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
const DEFAULT_PAGE = 50;

interface TransactionServices {
  readonly sql: Database;
  readonly exports: CsvExports;
}

/** Returns the route of the ledger's transactions (spec 4.9, contract 15). */
export function transactionRoutes({ sql, exports }: TransactionServices): RouteDefinition[] {
  return [
    route({
      method: "GET",
      path: "/v1/credits/transactions",
      tag: "Credits",
      operationId: "credits.transactions.list",
      summary: "List credit transactions",
      description:
        "The newest transaction is first. With `format=csv` all matching transactions are sent.",
      access,
      query: transactionsQuery,
      responses: { 200: { description: "Transactions.", schema: transactionList } },
      async handle(context) {
        const query = context.query;
        const { key } = context.caller;
        const { organizationId } = key;
        const onlyKeyId = shownKeyId(key);
        const isOtherKey = onlyKeyId !== undefined && (query.key_id ?? onlyKeyId) !== onlyKeyId;
        const showsBalance = onlyKeyId === undefined;
        const filter: TransactionFilter = {
          organizationId,
          type: query.type,
          keyId: query.key_id ?? onlyKeyId,
          model: query.model,
          search: query.search,
          ...timeSpan(query),
        };
        const isCsv = query.format === "csv";
        if (isCsv && !isPage(query)) {
          return sendAll(context, exports, sql, isOtherKey ? undefined : filter, showsBalance);
        }
        const { transactions, total, hasMore } = isOtherKey
          ? NOTHING
          : await listTransactions(sql, {
              ...filter,
              limit: query.limit ?? DEFAULT_PAGE,
              offset: query.offset ?? 0,
            });
        const payments = await paymentsOf(sql, organizationId, transactions);
        if (isCsv) {
          const rows = await csvRows(sql, key, transactions, payments, showsBalance);
          const headers = { "x-gateway-has-more": String(hasMore) };
          return csvResponse(FILENAME, [HEADER, ...rows], headers);
        }
        return jsonResponse({
          data: transactions.map((transaction) =>
            transactionShape(transaction, payments.get(transaction.id), showsBalance),
          ),
          total,
          has_more: hasMore,
        });
      },
    }),
  ];
}

function paymentsOf(
  sql: Database,
  organizationId: string,
  transactions: readonly ListedTransaction[],
): Promise<ReadonlyMap<string, TransactionPayment>> {
  const ids = transactions.flatMap(({ id, type }) =>
    type === "topup" || type === "adjustment" ? [id] : [],
  );
  return findTransactionPayments(sql, organizationId, ids);
}

const HEADER = [
  ...["id", "created_at", "type", "kind", "description"],
  ...["amount_usd", "fee_usd", "balance_after_usd"],
  ...["key_id", ...KEY_NAME_COLUMNS],
  ...["model", "provider", "request_id", "refunded_request_id"],
  ...["status", "latency_ms", "prompt_tokens", "completion_tokens"],
  ...["cached_tokens", "reasoning_tokens", "estimated", "user", "session_id"],
  ...["payment_id", "card_brand", "card_last4", "receipt_url"],
];
const FILENAME = "transactions.csv";
const ROWS_A_PAGE = 1_000;
const NOTHING = { transactions: [], total: 0, hasMore: false };

/** Sends all matching transactions. Sends none if the filter is undefined. */
function sendAll(
  context: RequestContext,
  exports: CsvExports,
  sql: Database,
  filter: TransactionFilter | undefined,
  showsBalance: boolean,
): Promise<Response> {
  return exports.send(context, {
    filename: FILENAME,
    header: HEADER,
    async *pages() {
      if (filter === undefined) return;
      const { organizationId } = filter;
      const { isTooLong, read } = await exportTransactions(sql, filter, MAX_EXPORT_ROWS);
      if (isTooLong) throw exportTooLong();
      for (let before: bigint | undefined; ; ) {
        const transactions = await read(before, ROWS_A_PAGE);
        const payments = await paymentsOf(sql, organizationId, transactions);
        yield csvRows(sql, context.caller.key, transactions, payments, showsBalance);
        if (transactions.length < ROWS_A_PAGE) return;
        before = transactions.at(-1)!.sequence;
      }
    },
  });
}

async function csvRows(
  sql: Database,
  caller: ApiKeyRecord,
  transactions: readonly ListedTransaction[],
  payments: ReadonlyMap<string, TransactionPayment>,
  showsBalance: boolean,
): Promise<CsvRow[]> {
  const keyIds = transactions.flatMap(({ keyId }) => keyId ?? []);
  const names = await exportedKeyNames(sql, caller, keyIds);
  return transactions.map((one) => csvRow(one, names, payments.get(one.id), showsBalance));
}

function csvRow(
  one: ListedTransaction,
  names: ReadonlyMap<string, KeyNames>,
  payment: TransactionPayment | undefined,
  showsBalance: boolean,
): CsvRow {
  return [
    ...[one.id, isoTime(one.createdAtMs), one.type, one.kind, one.description],
    { nanoUsd: one.amountNano },
    one.feeNano === null ? null : { nanoUsd: one.feeNano },
    showsBalance ? { nanoUsd: one.balanceAfterNano } : null,
    ...[one.keyId, ...keyNameCells(one.keyId, names)],
    ...[one.model, one.provider, one.requestId, one.refundedRequestId],
    ...[one.status, one.latencyMs, one.promptTokens, one.completionTokens],
    ...[one.cachedPromptTokens, one.reasoningTokens, one.estimated, one.user, one.sessionId],
    ...[payment?.id ?? null, payment?.method?.brand ?? null, payment?.method?.last4 ?? null],
    payment?.receiptUrl ?? null,
  ];
}

function transactionShape(
  transaction: ListedTransaction,
  payment: TransactionPayment | undefined,
  showsBalance: boolean,
) {
  const isUsage = transaction.type === "usage";
  return {
    id: transaction.id,
    type: transaction.type,
    kind: transaction.kind,
    amount_usd: usdNumber(transaction.amountNano),
    balance_after_usd: showsBalance ? usdNumber(transaction.balanceAfterNano) : null,
    description: transaction.description,
    ...(isUsage && {
      fee_usd: transaction.feeNano === null ? null : usdNumber(transaction.feeNano),
      model: transaction.model,
      request_id: transaction.requestId,
      key_id: transaction.keyId,
      provider: transaction.provider,
      prompt_tokens: transaction.promptTokens,
      completion_tokens: transaction.completionTokens,
      estimated: transaction.estimated,
      details: detailsShape(transaction),
    }),
    ...(transaction.refundedRequestId !== null && {
      refunded_request_id: transaction.refundedRequestId,
    }),
    ...(payment !== undefined && { payment: { id: payment.id, method: payment.method } }),
    ...(transaction.type === "topup" &&
      payment?.receiptUrl != null && { receipt_url: payment.receiptUrl }),
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
