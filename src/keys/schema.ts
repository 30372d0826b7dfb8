import { Type } from "typebox";
import type { ListedKey } from "../../db/queries/api-keys.ts";
import {
  type ApiKeyRecord,
  MAX_RATE_LIMIT_RPM,
  SCOPES,
  scopeNames,
} from "../lib/api-key-record.ts";
import { isoTime } from "../lib/iso-time.ts";
import { type NanoUsd, usdNumber } from "../lib/money.ts";

const MAX_NAME_CHARACTERS = 256;
const MAX_ALLOWED_MODELS = 1_000;
const MAX_MODEL_CHARACTERS = 256;
const MAX_BUDGET_USD = 1_000_000_000;
const MAX_PAGE = 1_000;

const name = Type.String({ minLength: 1, maxLength: MAX_NAME_CHARACTERS });
const scopes = Type.Array(Type.Enum([...SCOPES]), { minItems: 1, uniqueItems: true });
const rateLimit = Type.Integer({ minimum: 1, maximum: MAX_RATE_LIMIT_RPM });
const budget = Type.Number({ minimum: 0, maximum: MAX_BUDGET_USD });
const allowedModels = Type.Array(Type.String({ minLength: 1, maxLength: MAX_MODEL_CHARACTERS }), {
  minItems: 1,
  maxItems: MAX_ALLOWED_MODELS,
  uniqueItems: true,
});
const time = Type.String({ minLength: 10, maxLength: 64, description: "ISO 8601" });

const optionalLimits = {
  rate_limit_rpm: Type.Optional(Type.Union([rateLimit, Type.Null()])),
  daily_budget_usd: Type.Optional(Type.Union([budget, Type.Null()])),
  monthly_budget_usd: Type.Optional(Type.Union([budget, Type.Null()])),
  allowed_models: Type.Optional(Type.Union([allowedModels, Type.Null()])),
  expires_at: Type.Optional(Type.Union([time, Type.Null()])),
};

export const createKeyBody = Type.Object(
  { name, scopes: Type.Optional(Type.Union([scopes, Type.Null()])), ...optionalLimits },
  {
    additionalProperties: false,
    examples: [
      {
        name: "ada",
        scopes: ["chat:completions", "models:read"],
        rate_limit_rpm: 60,
        daily_budget_usd: 2.5,
        allowed_models: ["sandbox/chat"],
      },
    ],
  },
);

export const changeKeyBody = Type.Object(
  {
    name: Type.Optional(name),
    scopes: Type.Optional(scopes),
    is_active: Type.Optional(Type.Boolean()),
    ...optionalLimits,
  },
  { additionalProperties: false, examples: [{ monthly_budget_usd: 50, rate_limit_rpm: null }] },
);

export const listKeysQuery = Type.Object(
  {
    active: Type.Optional(Type.Boolean()),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: 50 })),
    offset: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  },
  { additionalProperties: false },
);

const nullable = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Union([schema, Type.Null()]);

const shared = {
  id: Type.String(),
  name: Type.String(),
  scopes: Type.Array(Type.String()),
  rate_limit_rpm: nullable(Type.Integer()),
  daily_budget_usd: nullable(Type.Number()),
  monthly_budget_usd: nullable(Type.Number()),
  is_active: Type.Boolean(),
  created_at: Type.String(),
};

export const createdKey = Type.Object({
  ...shared,
  key: Type.String(),
  allowed_models: nullable(Type.Array(Type.String())),
  expires_at: nullable(Type.String()),
});

export const keyListItem = Type.Object({
  ...shared,
  key_prefix: Type.String(),
  usage_today_usd: Type.Number(),
  usage_month_usd: Type.Number(),
  last_used_at: nullable(Type.String()),
  allowed_models: nullable(Type.Array(Type.String())),
  expires_at: nullable(Type.String()),
});

const leftOver = { description: "Null where there is no such limit" };

export const ownKey = Type.Object({
  ...keyListItem.properties,
  remaining_today_usd: Type.Union([Type.Number(), Type.Null()], {
    description:
      "Daily budget minus usage_today_usd; running requests may hold a part. Null: no budget",
  }),
  remaining_month_usd: Type.Union([Type.Number(), Type.Null()], {
    description: "As remaining_today_usd, of the UTC month",
  }),
  remaining_rpm: Type.Union([Type.Integer(), Type.Null()], leftOver),
});

export const keyList = Type.Object({ data: Type.Array(keyListItem), total: Type.Integer() });
export const deletedKey = Type.Object({ id: Type.String(), deleted: Type.Literal(true) });

function settingsShape(record: ApiKeyRecord) {
  return {
    scopes: scopeNames(record),
    rate_limit_rpm: record.rateLimitRpm,
    daily_budget_usd: record.dailyBudgetNano === null ? null : usdNumber(record.dailyBudgetNano),
    monthly_budget_usd:
      record.monthlyBudgetNano === null ? null : usdNumber(record.monthlyBudgetNano),
    allowed_models: record.allowedModels,
    expires_at: record.expiresAtMs === null ? null : isoTime(record.expiresAtMs),
    is_active: record.isActive,
    created_at: isoTime(record.createdAtMs),
  };
}

/** The create shape of spec 2.1, with the whole secret. */
export function createdKeyShape(record: ApiKeyRecord, secret: string) {
  return { id: record.id, key: secret, name: record.name, ...settingsShape(record) };
}

/** The list item of spec 2.1; it never holds the secret. */
export function keyItemShape(key: ListedKey) {
  const { record } = key;
  return {
    id: record.id,
    name: record.name,
    key_prefix: record.keyPrefix,
    ...settingsShape(record),
    usage_today_usd: usdNumber(key.spentTodayNano),
    usage_month_usd: usdNumber(key.spentThisMonthNano),
    last_used_at: key.lastUsedAtMs === null ? null : isoTime(key.lastUsedAtMs),
  };
}

/** A key as it sees itself. */
export function ownKeyShape(key: ListedKey, remainingRpm: number | null) {
  const { dailyBudgetNano, monthlyBudgetNano } = key.record;
  return {
    ...keyItemShape(key),
    remaining_today_usd: remainingUsd(dailyBudgetNano, key.spentTodayNano),
    remaining_month_usd: remainingUsd(monthlyBudgetNano, key.spentThisMonthNano),
    remaining_rpm: remainingRpm,
  };
}

/** A budget that was lowered below what is spent leaves nothing. */
function remainingUsd(budgetNano: NanoUsd | null, spentNano: NanoUsd): number | null {
  if (budgetNano === null) return null;
  return usdNumber(budgetNano > spentNano ? budgetNano - spentNano : 0n);
}
