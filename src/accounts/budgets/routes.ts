import { Type } from "typebox";
import type { SubjectBudget, SubjectLimits } from "../../../db/queries/subject-budgets.ts";
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
import { usdNumber } from "../../lib/money.ts";
import { isoTime } from "../../lib/utc-time.ts";
import { budgetFromUsd, budgetUsd } from "../keys/routes.ts";
import type { SubjectBudgets } from "./subject-budgets.ts";

const MAX_PAGE = 1_000;
const DEFAULT_PAGE = 50;

const type = Type.Enum(["user", "tag"]);
/** A user id or a tag. Has the same maximum length as the field `user` of a request. */
const value = Type.String({ minLength: 1, maxLength: 512, pattern: "^[^\\x00]+$" });
const subject = Type.Object(
  { type, value },
  { title: "BudgetSubject", additionalProperties: false },
);

export const subjectLimits = {
  daily_budget_usd: optional(budgetUsd),
  monthly_budget_usd: optional(budgetUsd),
};

const createBody = Type.Object(
  { subject, ...subjectLimits },
  {
    additionalProperties: false,
  },
);

const changeBody = Type.Object(subjectLimits, {
  additionalProperties: false,
});

const listQuery = Type.Object(
  { type: Type.Optional(type), value: Type.Optional(value), ...pageFields(MAX_PAGE) },
  { additionalProperties: false },
);

const budget = Type.Object(
  {
    id: Type.String(),
    subject,
    daily_budget_usd: nullable(Type.Number()),
    monthly_budget_usd: nullable(Type.Number()),
    usage_today_usd: Type.Number({
      description: "Spent in the current UTC day since the budget was created.",
    }),
    usage_month_usd: Type.Number(),
    created_at: Type.String({ description: "ISO 8601." }),
  },
  { title: "Budget" },
);

const budgetList = Type.Object(
  { data: Type.Array(budget), total: Type.Integer() },
  { title: "BudgetList" },
);
const deletedBudget = Type.Object(
  { id: Type.String(), deleted: Type.Literal(true) },
  { title: "DeletedBudget" },
);

function shapeOf(record: SubjectBudget) {
  const { dailyBudgetNano, monthlyBudgetNano } = record;
  return {
    id: record.id,
    subject: record.subject,
    daily_budget_usd: dailyBudgetNano === null ? null : usdNumber(dailyBudgetNano),
    monthly_budget_usd: monthlyBudgetNano === null ? null : usdNumber(monthlyBudgetNano),
    usage_today_usd: usdNumber(record.spentTodayNano),
    usage_month_usd: usdNumber(record.spentThisMonthNano),
    created_at: isoTime(record.createdAtMs),
  };
}

interface StatedLimits {
  readonly daily_budget_usd?: number | null;
  readonly monthly_budget_usd?: number | null;
}

/**
 * Returns the limits that the body states. Limits that are missing in the body stay undefined.
 * Throws 400 if a budget has too many decimals.
 */
export function limitsOf(body: StatedLimits): Partial<SubjectLimits> {
  const { daily_budget_usd: daily, monthly_budget_usd: monthly } = body;
  return {
    ...(daily !== undefined && { dailyBudgetNano: budgetFromUsd(daily, "daily_budget_usd") }),
    ...(monthly !== undefined && {
      monthlyBudgetNano: budgetFromUsd(monthly, "monthly_budget_usd"),
    }),
  };
}

const access: Access = { kind: "administration", scope: "keys:manage" };
const tag = "Budgets";
const budgetResponse = { description: "The budget.", schema: budget };

/** Returns the routes for budgets of end users and tags (contract §7). */
export function budgetRoutes(budgets: SubjectBudgets): RouteDefinition[] {
  return [
    route({
      method: "POST",
      path: "/v1/budgets",
      tag,
      operationId: "budgets.create",
      summary: "Create a budget of an end user or a tag",
      access,
      body: createBody,
      responses: {
        201: budgetResponse,
        409: { description: "The user or tag already has a budget." },
      },
      async handle(context) {
        const body = context.body;
        const unlimited = { dailyBudgetNano: null, monthlyBudgetNano: null };
        const stated = { ...unlimited, ...limitsOf(body) };
        const { author } = context;
        const created = await budgets.create(organizationOf(context), body.subject, stated, author);
        return jsonResponse(shapeOf(created), 201);
      },
    }),
    route({
      method: "GET",
      path: "/v1/budgets",
      tag,
      operationId: "budgets.list",
      summary: "List the budgets of the organization's end users and tags",
      access,
      query: listQuery,
      responses: { 200: { description: "Budgets, newest first.", schema: budgetList } },
      async handle(context) {
        const query = context.query;
        const { budgets: listed, total } = await budgets.list(organizationOf(context), {
          type: query.type,
          value: query.value,
          limit: query.limit ?? DEFAULT_PAGE,
          offset: query.offset ?? 0,
        });
        return jsonResponse({ data: listed.map(shapeOf), total });
      },
    }),
    route({
      method: "GET",
      path: "/v1/budgets/:id",
      tag,
      operationId: "budgets.retrieve",
      summary: "Retrieve a budget of an end user or a tag",
      access,
      responses: { 200: budgetResponse },
      handle: async (context) =>
        jsonResponse(shapeOf(await budgets.find(organizationOf(context), context.params.id))),
    }),
    route({
      method: "PATCH",
      path: "/v1/budgets/:id",
      tag,
      operationId: "budgets.update",
      summary: "Change a budget of an end user or a tag",
      description: "Null removes a limit.",
      access,
      body: changeBody,
      responses: { 200: budgetResponse },
      async handle(context) {
        const changed = limitsOf(context.body);
        const { params, author } = context;
        const organizationId = organizationOf(context);
        return jsonResponse(
          shapeOf(await budgets.change(organizationId, params.id, changed, author)),
        );
      },
    }),
    route({
      method: "DELETE",
      path: "/v1/budgets/:id",
      tag,
      operationId: "budgets.delete",
      summary: "Delete a budget of an end user or a tag",
      access,
      responses: { 200: { description: "The budget was deleted.", schema: deletedBudget } },
      async handle(context) {
        await budgets.remove(organizationOf(context), context.params.id, context.author);
        return jsonResponse({ id: context.params.id, deleted: true });
      },
    }),
  ];
}
