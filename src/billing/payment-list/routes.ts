import { Type } from "typebox";
import type { Database } from "../../../db/client.ts";
import { type ListedPayment, listPayments } from "../../../db/queries/payment-list.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { nullable, pageFields, type RouteDefinition, route } from "../../http/route.ts";
import { usdNumber } from "../../lib/money.ts";
import { isoTime } from "../../lib/utc-time.ts";

const MAX_PAGE = 100;
const DEFAULT_PAGE = 50;
/** The newest payments that the list shows. */
const MAX_OFFSET = 20_000;

const state = Type.Enum(["pending", "requires_action", "succeeded", "failed"], {
  title: "PaymentState",
});

const paymentsQuery = Type.Object(
  {
    ...pageFields(MAX_PAGE),
    offset: Type.Optional(Type.Integer({ minimum: 0, maximum: MAX_OFFSET })),
    status: Type.Optional(state),
  },
  { additionalProperties: false },
);

const payment = Type.Object(
  {
    id: Type.String(),
    purpose: Type.Enum(["topup", "auto_replenish"]),
    status: state,
    amount_usd: Type.Number(),
    description: Type.String(),
    payment_method: nullable(
      Type.Object({ brand: nullable(Type.String()), last4: nullable(Type.String()) }),
    ),
    error_reason: nullable(
      Type.String({ description: "The reason of a failed payment, such as `card_declined`." }),
    ),
    error_message: nullable(Type.String()),
    transaction_id: nullable(Type.String({ description: "The transaction of a top-up." })),
    receipt_url: nullable(Type.String()),
    returns: Type.Array(
      Type.Object({
        kind: Type.Enum(["refund", "dispute"]),
        status: Type.String({
          description:
            "Of a refund by an operator `ordered`, `pending`, `succeeded` or `failed`; of a dispute, and of a refund that was made at the processor, `open`, `lost` or `returned`.",
        }),
        amount_usd: Type.Number(),
        created_at: Type.String(),
      }),
      { description: "Money that went back to the card, or that the cardholder disputes." },
    ),
    created_at: Type.String(),
  },
  { title: "Payment" },
);

const paymentList = Type.Object(
  { data: Type.Array(payment), has_more: Type.Boolean() },
  { title: "PaymentList" },
);

/** Returns the route of payments, also of those that failed. */
export function paymentRoutes(sql: Database): RouteDefinition[] {
  return [
    route({
      method: "GET",
      path: "/v1/billing/payments",
      tag: "Billing",
      operationId: "billing.payments.list",
      summary: "List payments",
      description:
        "Contains payments that failed too, with the reason. The newest of the latest 20,000 payments is first.",
      access: { kind: "administration", scope: "billing:read" },
      query: paymentsQuery,
      responses: { 200: { description: "Payments.", schema: paymentList } },
      async handle({ query, caller: { key } }) {
        const { payments, hasMore } = await listPayments(sql, {
          organizationId: key.organizationId,
          state: query.status,
          limit: query.limit ?? DEFAULT_PAGE,
          offset: query.offset ?? 0,
        });
        return jsonResponse({ data: payments.map(paymentShape), has_more: hasMore });
      },
    }),
  ];
}

function paymentShape(listed: ListedPayment) {
  return {
    id: listed.id,
    purpose: listed.purpose,
    status: listed.state,
    amount_usd: usdNumber(listed.amountNano),
    description: listed.description,
    payment_method: listed.method,
    error_reason: listed.errorReason,
    error_message: listed.errorMessage,
    transaction_id: listed.transactionId,
    receipt_url: listed.receiptUrl,
    returns: listed.returns.map((one) => ({
      kind: one.kind,
      status: one.state,
      amount_usd: usdNumber(one.amountNano),
      created_at: isoTime(one.createdAtMs),
    })),
    created_at: isoTime(listed.createdAtMs),
  };
}
