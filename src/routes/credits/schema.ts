import { Type } from "typebox";

const MAX_PAGE = 200;

export const transactionsQuery = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: 50 })),
    offset: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
    type: Type.Optional(Type.Enum(["topup", "usage", "refund", "adjustment"])),
    start_date: Type.Optional(Type.String({ maxLength: 64, description: "ISO 8601, inclusive" })),
    end_date: Type.Optional(
      Type.String({
        maxLength: 64,
        description: "ISO 8601; a date without a time means its whole day",
      }),
    ),
  },
  { additionalProperties: false },
);

export const balance = Type.Object({
  balance_usd: Type.Number(),
  lifetime_spend_usd: Type.Number(),
  auto_replenish: Type.Boolean(),
  replenish_amount_usd: Type.Number(),
  replenish_threshold_usd: Type.Number(),
});

export const transactionList = Type.Object({
  data: Type.Array(
    Type.Object({
      id: Type.String(),
      type: Type.String(),
      amount_usd: Type.Number(),
      balance_after_usd: Type.Number(),
      description: Type.String(),
      model: Type.Optional(Type.String()),
      request_id: Type.Optional(Type.String()),
      created_at: Type.String(),
    }),
  ),
  total: Type.Integer(),
  has_more: Type.Boolean(),
});
