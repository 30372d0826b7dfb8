import { Type } from "typebox";
import type { ListedKey } from "../../../db/queries/api-keys.ts";
import { jsonResponse } from "../../http/error-response.ts";
import {
  type Access,
  nullable,
  optional,
  pageFields,
  type RouteDefinition,
  route,
} from "../../http/route.ts";
import {
  type ApiKeyRecord,
  type ApiKeySettings,
  MAX_RATE_LIMIT,
  SCOPES,
  scopeNames,
} from "../../lib/api-key-record.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { hasAtMostDecimals, type NanoUsd, nanoFromUsd, usdNumber } from "../../lib/money.ts";
import { isoTime, parseIsoTime } from "../../lib/utc-time.ts";
import type { ApiKeys, CallingKey } from "./api-keys.ts";

const MAX_NAME_CHARACTERS = 256;
const MAX_ALLOWED_MODELS = 1_000;
const MAX_MODEL_CHARACTERS = 256;
const MAX_BUDGET_USD = 1_000_000_000;
const MAX_PAGE = 1_000;

const name = Type.String({ minLength: 1, maxLength: MAX_NAME_CHARACTERS });
const scopes = Type.Array(Type.Enum([...SCOPES]), { minItems: 1, uniqueItems: true });
const rateLimit = Type.Integer({ minimum: 1, maximum: MAX_RATE_LIMIT });
export const budgetUsd = Type.Number({ minimum: 0, maximum: MAX_BUDGET_USD });
const allowedModels = Type.Array(Type.String({ minLength: 1, maxLength: MAX_MODEL_CHARACTERS }), {
  minItems: 1,
  maxItems: MAX_ALLOWED_MODELS,
  uniqueItems: true,
});
const time = Type.String({ minLength: 10, maxLength: 64, description: "ISO 8601." });

const optionalLimits = {
  rate_limit_rpm: optional(rateLimit),
  rate_limit_tpm: optional(rateLimit),
  daily_budget_usd: optional(budgetUsd),
  monthly_budget_usd: optional(budgetUsd),
  budget_includes_byok: Type.Optional(
    Type.Boolean({
      description:
        "Budgets also count calls with the organization's provider keys (BYOK), at list prices.",
    }),
  ),
  allowed_models: optional(allowedModels),
  expires_at: optional(time),
};

export const createKeyBody = Type.Object(
  { name, scopes: optional(scopes), ...optionalLimits },
  {
    additionalProperties: false,
  },
);

const changeKeyBody = Type.Object(
  {
    name: Type.Optional(name),
    scopes: Type.Optional(scopes),
    is_active: Type.Optional(Type.Boolean()),
    ...optionalLimits,
  },
  { additionalProperties: false },
);

const listKeysQuery = Type.Object(
  {
    active: Type.Optional(Type.Boolean()),
    search: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: MAX_NAME_CHARACTERS,
        description:
          "Keys whose name contains this text, ignoring case, or whose prefix begins with it.",
      }),
    ),
    ...pageFields(MAX_PAGE),
  },
  { additionalProperties: false },
);

const shared = {
  id: Type.String(),
  name: Type.String(),
  scopes: Type.Array(Type.String()),
  rate_limit_rpm: nullable(Type.Integer()),
  rate_limit_tpm: nullable(Type.Integer()),
  daily_budget_usd: nullable(Type.Number()),
  monthly_budget_usd: nullable(Type.Number()),
  budget_includes_byok: Type.Boolean(),
  is_active: Type.Boolean(),
  created_at: Type.String(),
};

const createdKey = Type.Object(
  {
    ...shared,
    key: Type.String(),
    allowed_models: nullable(Type.Array(Type.String())),
    expires_at: nullable(Type.String()),
  },
  { title: "CreatedKey" },
);

const keyListItem = Type.Object(
  {
    ...shared,
    key_prefix: Type.String(),
    usage_today_usd: Type.Number(),
    usage_month_usd: Type.Number(),
    last_used_at: nullable(Type.String()),
    allowed_models: nullable(Type.Array(Type.String())),
    expires_at: nullable(Type.String()),
  },
  { title: "Key" },
);

const remainingLimit = { description: "Remaining in the current window; null: no such limit." };

const callingKey = Type.Object(
  {
    ...keyListItem.properties,
    remaining_today_usd: Type.Union([Type.Number(), Type.Null()], {
      description:
        "Daily budget minus usage_today_usd; running requests may hold a part. Null: no budget.",
    }),
    remaining_month_usd: Type.Union([Type.Number(), Type.Null()], {
      description: "Monthly budget minus usage_month_usd; null: no budget.",
    }),
    remaining_rpm: Type.Union([Type.Integer(), Type.Null()], remainingLimit),
    remaining_tpm: Type.Union([Type.Integer(), Type.Null()], remainingLimit),
  },
  { title: "CallingKey" },
);

const keyList = Type.Object(
  { data: Type.Array(keyListItem), total: Type.Integer() },
  { title: "KeyList" },
);
const deletedKey = Type.Object(
  { id: Type.String(), deleted: Type.Literal(true) },
  { title: "DeletedKey" },
);

function settingsShape(record: ApiKeyRecord) {
  return {
    scopes: scopeNames(record),
    rate_limit_rpm: record.rateLimitRpm,
    rate_limit_tpm: record.rateLimitTpm,
    daily_budget_usd: record.dailyBudgetNano === null ? null : usdNumber(record.dailyBudgetNano),
    monthly_budget_usd:
      record.monthlyBudgetNano === null ? null : usdNumber(record.monthlyBudgetNano),
    budget_includes_byok: record.budgetIncludesByok,
    allowed_models: record.allowedModels,
    expires_at: record.expiresAtMs === null ? null : isoTime(record.expiresAtMs),
    is_active: record.isActive,
    created_at: isoTime(record.createdAtMs),
  };
}

/** Returns the create shape of spec 2.1, with the whole secret. */
export function createdKeyShape(record: ApiKeyRecord, secret: string) {
  return { id: record.id, key: secret, name: record.name, ...settingsShape(record) };
}

/** Returns the list item of spec 2.1, which never has the secret. */
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

/** Returns the shape of the calling key, with its remaining limits. */
function callingKeyShape({ key, remainingRpm, remainingTpm }: CallingKey) {
  const { dailyBudgetNano, monthlyBudgetNano } = key.record;
  return {
    ...keyItemShape(key),
    remaining_today_usd: remainingUsd(dailyBudgetNano, key.spentTodayNano),
    remaining_month_usd: remainingUsd(monthlyBudgetNano, key.spentThisMonthNano),
    remaining_rpm: remainingRpm,
    remaining_tpm: remainingTpm,
  };
}

/**
 * Returns the remaining budget in USD, or null if there is no budget. At least 0, even if the
 * budget was lowered below the spent amount.
 */
function remainingUsd(budgetNano: NanoUsd | null, spentNano: NanoUsd): number | null {
  if (budgetNano === null) return null;
  return usdNumber(budgetNano > spentNano ? budgetNano - spentNano : 0n);
}

const access: Access = { kind: "administration", scope: "keys:manage" };
const tag = "API keys";
const DEFAULT_PAGE = 50;
const NAME_CONFLICT = { description: "The organization already has a key with this name." };

/** Returns the routes for API keys (spec 4.1). */
export function keyRoutes(keys: ApiKeys, clock: Clock): RouteDefinition[] {
  return [...readingRoutes(keys), ...changingRoutes(keys, clock)];
}

function readingRoutes(keys: ApiKeys): RouteDefinition[] {
  return [
    route({
      method: "GET",
      path: "/v1/keys",
      tag,
      operationId: "keys.list",
      summary: "List the organization's API keys",
      access,
      query: listKeysQuery,
      responses: {
        200: { description: "Keys, newest first, without their secrets.", schema: keyList },
      },
      async handle(context) {
        const query = context.query;
        const { keys: listed, total } = await keys.list(context.caller.key, {
          isActive: query.active,
          search: query.search,
          limit: query.limit ?? DEFAULT_PAGE,
          offset: query.offset ?? 0,
        });
        return jsonResponse({ data: listed.map(keyItemShape), total });
      },
    }),
    {
      method: "GET",
      path: "/v1/keys/:id",
      tag,
      operationId: "keys.retrieve",
      summary: "Retrieve an API key",
      access,
      responses: {
        200: { description: "The key, without its secret.", schema: keyListItem },
      },
      async handle(context) {
        const key = await keys.find(context.caller.key, context.params.id!);
        return jsonResponse(keyItemShape(key));
      },
    },
    {
      method: "GET",
      path: "/v1/key",
      tag,
      operationId: "key.retrieve",
      summary: "Retrieve the calling key with its remaining limits",
      access: { kind: "self" },
      responses: { 200: { description: "The calling key.", schema: callingKey } },
      async handle(context) {
        return jsonResponse(callingKeyShape(await keys.findSelf(context.caller.key)));
      },
    },
  ];
}

function changingRoutes(keys: ApiKeys, clock: Clock): RouteDefinition[] {
  return [
    route({
      method: "POST",
      path: "/v1/keys",
      tag,
      operationId: "keys.create",
      summary: "Create an API key",
      access,
      body: createKeyBody,
      responses: {
        201: {
          description: "The key, with its secret, which is shown only once.",
          schema: createdKey,
        },
        409: NAME_CONFLICT,
      },
      async handle(context) {
        const settings = settingsOf(context.body, clock.nowMs());
        const { record, secret } = await keys.create(
          context.caller.key,
          settings as Partial<ApiKeySettings> & { name: string },
          context.author,
        );
        return jsonResponse(createdKeyShape(record, secret), 201);
      },
    }),
    route({
      method: "PATCH",
      path: "/v1/keys/:id",
      tag,
      operationId: "keys.update",
      summary: "Change an API key",
      description: "Null removes a limit.",
      access,
      body: changeKeyBody,
      responses: {
        200: { description: "The changed key.", schema: keyListItem },
        409: NAME_CONFLICT,
      },
      async handle(context) {
        const changed = settingsOf(context.body, clock.nowMs());
        const key = await keys.change(
          context.caller.key,
          context.params.id!,
          changed,
          context.author,
        );
        return jsonResponse(keyItemShape(key));
      },
    }),
    {
      method: "DELETE",
      path: "/v1/keys/:id",
      tag,
      operationId: "keys.delete",
      summary: "Revoke an API key",
      access,
      responses: { 200: { description: "The key was revoked.", schema: deletedKey } },
      async handle(context) {
        await keys.remove(context.caller.key, context.params.id!, context.author);
        return jsonResponse({ id: context.params.id, deleted: true });
      },
    },
  ];
}

interface KeyBody {
  readonly name?: string;
  readonly scopes?: readonly string[] | null;
  readonly rate_limit_rpm?: number | null;
  readonly rate_limit_tpm?: number | null;
  readonly daily_budget_usd?: number | null;
  readonly monthly_budget_usd?: number | null;
  readonly budget_includes_byok?: boolean;
  readonly allowed_models?: readonly string[] | null;
  readonly expires_at?: string | null;
  readonly is_active?: boolean;
}

const MAX_DECIMALS = 9;

/**
 * Returns the settings that the body states. Settings that are missing in the body stay undefined.
 * Throws 400 if a budget has too many decimals, or if the expiry is not a time in the future.
 */
function settingsOf(body: KeyBody, nowMs: number): Partial<ApiKeySettings> {
  const settings: { -readonly [Field in keyof ApiKeySettings]?: ApiKeySettings[Field] } = {};
  if (body.name !== undefined) settings.name = body.name;
  if (body.scopes !== undefined && body.scopes !== null) settings.scopes = body.scopes;
  if (body.rate_limit_rpm !== undefined) settings.rateLimitRpm = body.rate_limit_rpm;
  if (body.rate_limit_tpm !== undefined) settings.rateLimitTpm = body.rate_limit_tpm;
  if (body.daily_budget_usd !== undefined) {
    settings.dailyBudgetNano = budgetFromUsd(body.daily_budget_usd, "daily_budget_usd");
  }
  if (body.monthly_budget_usd !== undefined) {
    settings.monthlyBudgetNano = budgetFromUsd(body.monthly_budget_usd, "monthly_budget_usd");
  }
  if (body.budget_includes_byok !== undefined) {
    settings.budgetIncludesByok = body.budget_includes_byok;
  }
  if (body.allowed_models !== undefined) settings.allowedModels = body.allowed_models;
  if (body.expires_at !== undefined) settings.expiresAtMs = futureTime(body.expires_at, nowMs);
  if (body.is_active !== undefined) settings.isActive = body.is_active;
  return settings;
}

/**
 * Returns the budget in nano-USD; null means no limit. Throws 400 if the amount has more than 9
 * decimals.
 */
export function budgetFromUsd(usd: number | null, param: string): NanoUsd | null {
  if (usd === null) return null;
  if (hasAtMostDecimals(usd, MAX_DECIMALS)) return nanoFromUsd(usd);
  throw new GatewayError("invalid_body", `${param} may have at most ${MAX_DECIMALS} decimals.`, {
    param,
  });
}

function futureTime(text: string | null, nowMs: number): number | null {
  if (text === null) return null;
  const time = parseIsoTime(text);
  if (time !== undefined && time.ms > nowMs) return time.ms;
  throw new GatewayError("invalid_body", "expires_at must be an ISO 8601 time in the future.", {
    param: "expires_at",
  });
}
