import { jsonResponse } from "../http/error-response.ts";
import type { Access, RouteDefinition } from "../http/route.ts";
import type { ApiKeySettings } from "../lib/api-key-record.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import { parseIsoTime } from "../lib/iso-time.ts";
import { hasAtMostDecimals, type NanoUsd, nanoFromUsd } from "../lib/money.ts";
import type { ApiKeys } from "./api-keys.ts";
import * as schema from "./schema.ts";
import { createdKeyShape, keyItemShape, ownKeyShape } from "./schema.ts";

const access: Access = { kind: "administration", scope: "keys:manage" };
/** A limited key would escape its limits through other keys, and their figures are not its own. */
const unlimited: Access = { ...access, refusesLimitedKeys: true };
const tag = "API keys";
const DEFAULT_PAGE = 50;
const NAME_TAKEN = { description: "The organization has a key of this name already" };

/** API keys (spec 4.1). */
export function keyRoutes(keys: ApiKeys, clock: Clock): RouteDefinition[] {
  return [
    {
      method: "POST",
      path: "/v1/keys",
      tag,
      summary: "Create an API key",
      access: unlimited,
      body: schema.createKeyBody,
      responses: {
        201: { description: "The key, with its secret this once", schema: schema.createdKey },
        409: NAME_TAKEN,
      },
      async handle(context) {
        const settings = settingsOf(context.body as KeyBody, clock.nowMs());
        const { record, secret } = await keys.create(
          context.caller.key,
          settings as Partial<ApiKeySettings> & { name: string },
        );
        return jsonResponse(createdKeyShape(record, secret), 201);
      },
    },
    {
      method: "GET",
      path: "/v1/keys",
      tag,
      summary: "List the organization's API keys",
      access: unlimited,
      query: schema.listKeysQuery,
      responses: {
        200: { description: "Keys, newest first, without their secrets", schema: schema.keyList },
      },
      async handle(context) {
        const query = context.query as { active?: boolean; limit?: number; offset?: number };
        const { keys: listed, total } = await keys.list(context.caller.key, {
          isActive: query.active,
          limit: query.limit ?? DEFAULT_PAGE,
          offset: query.offset ?? 0,
        });
        return jsonResponse({ data: listed.map(keyItemShape), total });
      },
    },
    {
      method: "GET",
      path: "/v1/keys/:id",
      tag,
      summary: "Retrieve an API key",
      access,
      responses: {
        200: { description: "The key, without its secret", schema: schema.keyListItem },
      },
      async handle(context) {
        const found = await keys.find(context.caller.key, context.params.id!);
        return jsonResponse(keyItemShape(found));
      },
    },
    {
      method: "GET",
      path: "/v1/key",
      tag,
      summary: "Show the calling key to itself, with what is left of its limits",
      access: { kind: "self" },
      responses: { 200: { description: "The calling key", schema: schema.ownKey } },
      async handle(context) {
        const { key, remainingRpm } = await keys.own(context.caller.key);
        return jsonResponse(ownKeyShape(key, remainingRpm));
      },
    },
    {
      method: "PATCH",
      path: "/v1/keys/:id",
      tag,
      summary: "Change an API key; null takes a limit away",
      access: unlimited,
      body: schema.changeKeyBody,
      responses: {
        200: { description: "The key as it now stands", schema: schema.keyListItem },
        409: NAME_TAKEN,
      },
      async handle(context) {
        const changed = settingsOf(context.body as KeyBody, clock.nowMs());
        const key = await keys.change(context.caller.key, context.params.id!, changed);
        return jsonResponse(keyItemShape(key));
      },
    },
    {
      method: "DELETE",
      path: "/v1/keys/:id",
      tag,
      summary: "Revoke an API key",
      access: unlimited,
      responses: { 200: { description: "It is gone", schema: schema.deletedKey } },
      async handle(context) {
        await keys.remove(context.caller.key, context.params.id!);
        return jsonResponse({ id: context.params.id, deleted: true });
      },
    },
  ];
}

interface KeyBody {
  readonly name?: string;
  readonly scopes?: readonly string[] | null;
  readonly rate_limit_rpm?: number | null;
  readonly daily_budget_usd?: number | null;
  readonly monthly_budget_usd?: number | null;
  readonly allowed_models?: readonly string[] | null;
  readonly expires_at?: string | null;
  readonly is_active?: boolean;
}

const MAX_DECIMALS = 9;

/** The settings that a body names; what it leaves out stays out. Throws 400. */
function settingsOf(body: KeyBody, nowMs: number): Partial<ApiKeySettings> {
  const settings: { -readonly [Field in keyof ApiKeySettings]?: ApiKeySettings[Field] } = {};
  if (body.name !== undefined) settings.name = body.name;
  if (body.scopes !== undefined && body.scopes !== null) settings.scopes = body.scopes;
  if (body.rate_limit_rpm !== undefined) settings.rateLimitRpm = body.rate_limit_rpm;
  if (body.daily_budget_usd !== undefined) {
    settings.dailyBudgetNano = budget(body.daily_budget_usd, "daily_budget_usd");
  }
  if (body.monthly_budget_usd !== undefined) {
    settings.monthlyBudgetNano = budget(body.monthly_budget_usd, "monthly_budget_usd");
  }
  if (body.allowed_models !== undefined) settings.allowedModels = body.allowed_models;
  if (body.expires_at !== undefined) settings.expiresAtMs = futureTime(body.expires_at, nowMs);
  if (body.is_active !== undefined) settings.isActive = body.is_active;
  return settings;
}

function budget(usd: number | null, param: string): NanoUsd | null {
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
