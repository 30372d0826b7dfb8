import { Type } from "typebox";
import type { SubjectLimits } from "../../../db/queries/subject-budgets.ts";
import type { Team, TeamSettings } from "../../../db/queries/teams.ts";
import { jsonResponse } from "../../http/error-response.ts";
import {
  type Access,
  nullable,
  optional,
  organizationOf,
  pageFields,
  type RouteDefinition,
  route,
} from "../../http/route.ts";
import { MAX_RATE_LIMIT } from "../../lib/api-key-record.ts";
import { type NanoUsd, usdNumber } from "../../lib/money.ts";
import { isoTime } from "../../lib/utc-time.ts";
import { limitsOf, subjectLimits } from "../budgets/routes.ts";
import { budgetFromUsd, budgetUsd, modelList } from "../keys/routes.ts";
import type { Teams } from "./teams.ts";

const MAX_PAGE = 1_000;
const DEFAULT_PAGE = 50;
const MAX_NAME_CHARACTERS = 256;
const MAX_KEYS = 100_000;
const MAX_DAYS = 36_500;

const rate = Type.Integer({ minimum: 1, maximum: MAX_RATE_LIMIT });
const text = Type.String({ minLength: 1, maxLength: MAX_NAME_CHARACTERS });

const settings = {
  ...subjectLimits,
  rate_limit_rpm: optional(rate),
  rate_limit_tpm: optional(rate),
  allowed_models: optional(modelList({ description: "The only models that its keys may use." })),
  guardrail: optional(
    Type.String({ ...text, description: "Guardrail of every request, by name or id." }),
  ),
  preset: optional(
    Type.String({
      ...text,
      description: "Preset of every request, by name or id. It fills what the request leaves open.",
    }),
  ),
  key_policy: Type.Optional(
    Type.Object(
      {
        max_keys_per_member: optional(Type.Integer({ minimum: 0, maximum: MAX_KEYS })),
        max_daily_budget_usd: optional(budgetUsd),
        max_lifetime_days: optional(Type.Integer({ minimum: 1, maximum: MAX_DAYS })),
      },
      { additionalProperties: false, description: "What developers may create for themselves." },
    ),
  ),
};

const createBody = Type.Object({ name: text, ...settings }, { additionalProperties: false });
const changeBody = Type.Object(
  { name: Type.Optional(text), ...settings },
  { additionalProperties: false },
);

const amount = nullable(Type.Number());
const team = Type.Object(
  {
    id: Type.String(),
    name: Type.String(),
    daily_budget_usd: amount,
    monthly_budget_usd: amount,
    rate_limit_rpm: nullable(Type.Integer()),
    rate_limit_tpm: nullable(Type.Integer()),
    allowed_models: nullable(Type.Array(Type.String())),
    guardrail: nullable(Type.String()),
    preset: nullable(Type.String()),
    key_policy: Type.Object({
      max_keys_per_member: nullable(Type.Integer()),
      max_daily_budget_usd: amount,
      max_lifetime_days: nullable(Type.Integer()),
    }),
    usage_today_usd: Type.Number({ description: "Spent by its keys in the current UTC day." }),
    usage_month_usd: Type.Number(),
    created_at: Type.String({ description: "ISO 8601." }),
  },
  { title: "Team" },
);
const teamList = Type.Object(
  { data: Type.Array(team), total: Type.Integer() },
  { title: "TeamList" },
);
const deletedTeam = Type.Object(
  { id: Type.String(), deleted: Type.Literal(true) },
  { title: "DeletedTeam" },
);

function usdOrNull(nano: NanoUsd | null): number | null {
  return nano === null ? null : usdNumber(nano);
}

function shapeOf(record: Team) {
  return {
    id: record.id,
    name: record.name,
    daily_budget_usd: usdOrNull(record.dailyBudgetNano),
    monthly_budget_usd: usdOrNull(record.monthlyBudgetNano),
    rate_limit_rpm: record.rateLimitRpm,
    rate_limit_tpm: record.rateLimitTpm,
    allowed_models: record.allowedModels,
    guardrail: record.guardrail,
    preset: record.preset,
    key_policy: {
      max_keys_per_member: record.maxKeysPerMember,
      max_daily_budget_usd: usdOrNull(record.maxKeyDailyBudgetNano),
      max_lifetime_days: record.maxKeyLifetimeDays,
    },
    usage_today_usd: usdNumber(record.spentTodayNano),
    usage_month_usd: usdNumber(record.spentThisMonthNano),
    created_at: isoTime(record.createdAtMs),
  };
}

type StatedTeam = Partial<Type.Static<typeof changeBody>>;

/** Returns the settings that the body states. Throws 400 if a budget has too many decimals. */
function settingsOf(body: StatedTeam): {
  readonly settings: Partial<TeamSettings>;
  readonly limits: Partial<SubjectLimits>;
} {
  const { key_policy: policy = {} } = body;
  const maxDaily = policy.max_daily_budget_usd;
  const stated = {
    name: body.name,
    rateLimitRpm: body.rate_limit_rpm,
    rateLimitTpm: body.rate_limit_tpm,
    allowedModels: body.allowed_models,
    guardrail: body.guardrail,
    preset: body.preset,
    maxKeysPerMember: policy.max_keys_per_member,
    maxKeyDailyBudgetNano:
      maxDaily === undefined
        ? undefined
        : budgetFromUsd(maxDaily, "key_policy.max_daily_budget_usd"),
    maxKeyLifetimeDays: policy.max_lifetime_days,
  };
  const settings = Object.entries(stated).filter(([, value]) => value !== undefined);
  return { settings: Object.fromEntries(settings), limits: limitsOf(body) };
}

const access: Access = { kind: "administration", scope: "keys:manage", isForManagement: true };
const tag = "Teams";
const teamResponse = { description: "The team.", schema: team };
const NAME_CONFLICT = { description: "The organization already has a team with this name." };

/** Returns the routes for teams (contract §14). */
export function teamRoutes(teams: Teams): RouteDefinition[] {
  return [
    route({
      method: "POST",
      path: "/v1/teams",
      tag,
      operationId: "teams.create",
      summary: "Create a team",
      access,
      body: createBody,
      responses: { 201: teamResponse, 409: NAME_CONFLICT },
      async handle(context) {
        const { author, body } = context;
        const { settings, limits } = settingsOf(body);
        const stated = { ...settings, name: body.name };
        const created = await teams.create(organizationOf(context), stated, limits, author);
        return jsonResponse(shapeOf(created), 201);
      },
    }),
    route({
      method: "GET",
      path: "/v1/teams",
      tag,
      operationId: "teams.list",
      summary: "List the organization's teams",
      access,
      query: Type.Object(pageFields(MAX_PAGE), { additionalProperties: false }),
      responses: { 200: { description: "Teams, newest first.", schema: teamList } },
      async handle(context) {
        const { limit = DEFAULT_PAGE, offset = 0 } = context.query;
        const page = { limit, offset };
        const { teams: listed, total } = await teams.list(organizationOf(context), page);
        return jsonResponse({ data: listed.map(shapeOf), total });
      },
    }),
    route({
      method: "GET",
      path: "/v1/teams/:id",
      tag,
      operationId: "teams.retrieve",
      summary: "Retrieve a team",
      access,
      responses: { 200: teamResponse },
      handle: async (context) =>
        jsonResponse(shapeOf(await teams.find(organizationOf(context), context.params.id))),
    }),
    route({
      method: "PATCH",
      path: "/v1/teams/:id",
      tag,
      operationId: "teams.update",
      summary: "Change a team",
      description: "Null removes a limit. In force on every instance within a second.",
      access,
      body: changeBody,
      responses: { 200: teamResponse, 409: NAME_CONFLICT },
      async handle(context) {
        const { params, author, body } = context;
        const changed = settingsOf(body);
        return jsonResponse(
          shapeOf(await teams.change(organizationOf(context), params.id, changed, author)),
        );
      },
    }),
    route({
      method: "DELETE",
      path: "/v1/teams/:id",
      tag,
      operationId: "teams.delete",
      summary: "Delete a team",
      access,
      responses: {
        200: { description: "The team was deleted.", schema: deletedTeam },
        409: { description: "The team has keys." },
      },
      async handle(context) {
        const { params, author } = context;
        await teams.remove(organizationOf(context), params.id, author);
        return jsonResponse({ id: params.id, deleted: true });
      },
    }),
  ];
}
