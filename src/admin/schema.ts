import { Type } from "typebox";
import { PLANS } from "../config/settings.ts";

const MAX_NAME_CHARACTERS = 256;
const MAX_DESCRIPTION_CHARACTERS = 500;
const MAX_ID_CHARACTERS = 64;
const MAX_FEE_PERCENT = 100;
const MAX_AMOUNT_USD = 1_000_000_000;
const MAX_COUNT = 2_147_483_647;
const MAX_PAGE = 200;

const nullable = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Union([schema, Type.Null()]);
const settable = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Optional(nullable(schema));

const name = Type.String({ minLength: 1, maxLength: MAX_NAME_CHARACTERS });
const plan = Type.Enum([...PLANS]);

/** Null gives back what the plan, or the gateway, has for all; of the credit limit it means no limit. */
const limits = {
  fee_percent: settable(
    Type.Number({
      minimum: 0,
      maximum: MAX_FEE_PERCENT,
      description: "Fee on top of provider cost; at most 2 decimals",
    }),
  ),
  file_quota_bytes: settable(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  max_keys: settable(Type.Integer({ minimum: 0, maximum: MAX_COUNT })),
  max_webhooks: settable(Type.Integer({ minimum: 0, maximum: MAX_COUNT })),
  credit_limit_usd: settable(
    Type.Number({
      minimum: 0,
      maximum: MAX_AMOUNT_USD,
      description: "How far the balance may go below zero; null: without limit",
    }),
  ),
};

export const createOrganizationBody = Type.Object(
  {
    name,
    plan: Type.Optional(plan),
    starting_credit_usd: Type.Optional(Type.Number({ minimum: 0, maximum: MAX_AMOUNT_USD })),
    ...limits,
  },
  { additionalProperties: false, examples: [{ name: "Acme", plan: "pro", max_keys: 500 }] },
);

export const changeOrganizationBody = Type.Object(
  {
    name: Type.Optional(name),
    plan: Type.Optional(plan),
    suspended: Type.Optional(Type.Boolean()),
    ...limits,
  },
  { additionalProperties: false, examples: [{ plan: "enterprise", credit_limit_usd: 500 }] },
);

export const pageQuery = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: 50 })),
    offset: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  },
  { additionalProperties: false },
);

export const adjustmentBody = Type.Object(
  {
    amount_usd: Type.Number({
      minimum: -MAX_AMOUNT_USD,
      maximum: MAX_AMOUNT_USD,
      description: "Negative takes from what of the balance is not held; not 0; at most 9 decimals",
    }),
    description: Type.String({ minLength: 1, maxLength: MAX_DESCRIPTION_CHARACTERS }),
  },
  { additionalProperties: false, examples: [{ amount_usd: 100, description: "Invoice 17" }] },
);

export const refundBody = Type.Object(
  {
    transaction_id: Type.String({
      minLength: 1,
      maxLength: MAX_ID_CHARACTERS,
      description: "A usage transaction of the organization",
    }),
    amount_usd: Type.Optional(
      Type.Number({
        exclusiveMinimum: 0,
        maximum: MAX_AMOUNT_USD,
        description: "At most what was not refunded yet, which is all of it where this is left out",
      }),
    ),
  },
  { additionalProperties: false, examples: [{ transaction_id: "txn_…", amount_usd: 0.5 }] },
);

export const organization = Type.Object({
  id: Type.String(),
  name: Type.String(),
  plan: Type.String(),
  fee_percent: Type.Number(),
  file_quota_bytes: Type.Integer(),
  max_keys: Type.Integer(),
  max_webhooks: Type.Integer(),
  credit_limit_usd: nullable(Type.Number()),
  overrides: Type.Array(Type.String(), {
    description: "Fields that are set for this organization alone",
  }),
  suspended: Type.Boolean(),
  balance_usd: Type.Number(),
  key_count: Type.Integer(),
  created_at: Type.String(),
});

export const organizationList = Type.Object({
  data: Type.Array(organization),
  total: Type.Integer(),
});

export const createdOrganization = Type.Object({
  organization,
  management_key: Type.String(),
  secret_key: Type.String(),
});

export const postedEntry = Type.Object({
  id: Type.String(),
  type: Type.Enum(["adjustment", "refund"]),
  amount_usd: Type.Number(),
  balance_after_usd: Type.Number(),
  description: Type.String(),
  created_at: Type.String(),
});

export const providerHealth = Type.Object({
  instance_id: Type.String({ description: "The instance that answers; health is its own view" }),
  data: Type.Array(
    Type.Object({
      id: Type.String(),
      models: Type.Integer(),
      status: Type.Enum(["ok", "degraded", "down"]),
      endpoints: Type.Array(
        Type.Object({
          id: Type.String(),
          circuit: Type.Enum(["closed", "open", "half-open"]),
          running: Type.Integer(),
          latency_ms: nullable(Type.Number()),
        }),
      ),
    }),
  ),
});
