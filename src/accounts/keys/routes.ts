import { type TSchema, type TSchemaOptions, Type } from "typebox";
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
  SETTING_ROWS,
  type SettingField,
  type SettingKinds,
  type SettingRow,
  scopeNames,
  type WireSettings,
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

/** The form of an id of an object of the organization. */
const OBJECT_ID = "^[a-z]+_[0-9a-f]{32}$";

const budget = { minimum: 0, maximum: MAX_BUDGET_USD };
export const budgetUsd = Type.Number(budget);
const model = Type.String({ minLength: 1, maxLength: MAX_MODEL_CHARACTERS });

/** Returns the schema of a list of allowed models. */
export function modelList(options: TSchemaOptions) {
  return Type.Array(model, {
    minItems: 1,
    maxItems: MAX_ALLOWED_MODELS,
    uniqueItems: true,
    ...options,
  });
}

/** Schemas of the values in bodies. The options have the description of the setting. */
const BODY_SCHEMAS: Readonly<Record<keyof SettingKinds, (options: TSchemaOptions) => TSchema>> = {
  text: (options) => Type.String({ minLength: 1, maxLength: MAX_NAME_CHARACTERS, ...options }),
  scopes: (options) =>
    Type.Array(Type.Enum([...SCOPES]), { minItems: 1, uniqueItems: true, ...options }),
  rate: (options) => Type.Integer({ minimum: 1, maximum: MAX_RATE_LIMIT, ...options }),
  amount: (options) => Type.Number({ ...budget, ...options }),
  flag: (options) => Type.Boolean(options),
  id: (options) => Type.String({ pattern: OBJECT_ID, ...options }),
  models: modelList,
  time: (options) => Type.String({ minLength: 10, maxLength: 64, ...options }),
};

/** Schemas of the values in answers. */
const ANSWER_SCHEMAS: Readonly<Record<keyof SettingKinds, TSchema>> = {
  text: Type.String(),
  scopes: Type.Array(Type.String()),
  rate: Type.Integer(),
  amount: Type.Number(),
  flag: Type.Boolean(),
  id: Type.String(),
  models: Type.Array(Type.String()),
  time: Type.String(),
};

/** Returns the schema of each setting, by its field. */
function settingSchemas(schemaOf: (row: SettingRow) => TSchema) {
  const schemas = SETTING_ROWS.map((row) => [row.field, schemaOf(row)]);
  return Object.fromEntries(schemas) as Record<SettingField, TSchema>;
}

const { name, scopes, is_active, ...limits } = settingSchemas(({ kind, initial, description }) => {
  const schema = BODY_SCHEMAS[kind]({ description });
  return initial === null ? optional(schema) : Type.Optional(schema);
});

export const createKeyBody = Type.Unsafe<Partial<WireSettings> & Pick<WireSettings, "name">>(
  Type.Object(
    { name: BODY_SCHEMAS.text({}), scopes: optional(scopes), ...limits },
    { additionalProperties: false },
  ),
);

const changeKeyBody = Type.Unsafe<Partial<WireSettings>>(
  Type.Object({ name, scopes, is_active, ...limits }, { additionalProperties: false }),
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

const { allowed_models, expires_at, team_id, owner_id, ...otherAnswers } = settingSchemas(
  ({ kind, initial }) => (initial === null ? nullable(ANSWER_SCHEMAS[kind]) : ANSWER_SCHEMAS[kind]),
);
const shared = { id: Type.String(), ...otherAnswers, created_at: Type.String() };

const createdKey = Type.Object(
  { ...shared, key: Type.String(), allowed_models, expires_at, team_id, owner_id },
  { title: "CreatedKey" },
);

const keyListItem = Type.Object(
  {
    ...shared,
    key_prefix: Type.String(),
    usage_today_usd: Type.Number(),
    usage_month_usd: Type.Number(),
    last_used_at: nullable(Type.String()),
    allowed_models,
    expires_at,
    team_id,
    owner_id,
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

function settingsShape(record: ApiKeyRecord): WireSettings {
  const shape = SETTING_ROWS.map(({ name, field, kind }) => [field, toWire(kind, record[name])]);
  return Object.fromEntries(shape);
}

function toWire(kind: keyof SettingKinds, value: unknown): unknown {
  if (value === null) return null;
  if (kind === "amount") return usdNumber(value as NanoUsd);
  if (kind === "time") return isoTime(value as number);
  if (kind === "scopes") return scopeNames({ scopes: value as readonly string[] });
  return value;
}

/** Returns the create shape of spec 2.1, with the whole secret. */
export function createdKeyShape(record: ApiKeyRecord, secret: string) {
  const created_at = isoTime(record.createdAtMs);
  return { id: record.id, key: secret, ...settingsShape(record), created_at };
}

/** Returns the list item of spec 2.1, which never has the secret. */
export function keyItemShape(key: ListedKey) {
  const { record } = key;
  const { name, ...settings } = settingsShape(record);
  return {
    id: record.id,
    name,
    key_prefix: record.keyPrefix,
    ...settings,
    created_at: isoTime(record.createdAtMs),
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
        const { name } = context.body;
        const settings = { ...settingsOf(context.body, clock.nowMs()), name };
        const { record, secret } = await keys.create(context.caller.key, settings, context.author);
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

const MAX_DECIMALS = 9;

/**
 * Returns the settings that the body states. Throws 400 if a budget has too many decimals, or if the
 * expiry is not a time in the future.
 */
function settingsOf(body: Partial<WireSettings>, nowMs: number): Partial<ApiKeySettings> {
  const settings: Record<string, unknown> = {};
  for (const { name, field, kind, initial } of SETTING_ROWS) {
    const value = body[field];
    // Null removes a limit. Scopes that are null count as missing.
    if (value === undefined || (value === null && initial !== null)) continue;
    if (kind === "amount") settings[name] = budgetFromUsd(value as number | null, field);
    else if (kind === "time") settings[name] = futureTime(value as string | null, field, nowMs);
    else settings[name] = value;
  }
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

function futureTime(text: string | null, param: string, nowMs: number): number | null {
  if (text === null) return null;
  const time = parseIsoTime(text);
  if (time !== undefined && time.ms > nowMs) return time.ms;
  throw new GatewayError("invalid_body", `${param} must be an ISO 8601 time in the future.`, {
    param,
  });
}
