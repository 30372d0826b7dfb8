import { Type } from "typebox";
import type { Database } from "../../../db/client.ts";
import {
  type GatewayGroup,
  type GatewayUsageRow,
  listGatewayUsage,
} from "../../../db/queries/gateway-usage.ts";
import { findOperatedOrganization } from "../../../db/queries/organizations.ts";
import { listUsage, USAGE_GROUPS, type UsageGroup } from "../../../db/queries/usage.ts";
import type { TopNames } from "../../../db/queries/usage-top.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { nullable, type RouteDefinition, route } from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { usdNumber } from "../../lib/money.ts";
import {
  dateOf,
  intervalDate,
  intervalFields,
  intervalPage,
  invalidQuery,
} from "./interval-query.ts";
import { isRestField, nameFields, parseGroups, SHOWN_NAMES, topFields, topOf } from "./routes.ts";
import { bringGatewayUpToDate, bringUsageUpToDate } from "./usage.ts";
import { type Amounts, figureFields, figuresShape, isComplete, usageCsv } from "./usage-report.ts";

/** The groups of `GET /v1/admin/usage`. */
const GROUPS = ["organization", ...USAGE_GROUPS] as const;
type Group = (typeof GROUPS)[number];

const id = { minLength: 1, maxLength: 128 };
const named = { minLength: 1, maxLength: 1_024 };

const query = Type.Object(
  {
    ...intervalFields,
    group_by: Type.Optional(
      Type.String({
        maxLength: 96,
        description: `A comma-separated list of ${GROUPS.join(", ")}. All except organization, model and provider need organization_id.`,
      }),
    ),
    ...topFields,
    organization_id: Type.Optional(Type.String(id)),
    key_id: Type.Optional(Type.String({ ...id, description: "Needs organization_id." })),
    model: Type.Optional(Type.String(named)),
    provider: Type.Optional(Type.String(named)),
    format: Type.Optional(Type.Enum(["json", "csv"], { default: "json" })),
  },
  { additionalProperties: false },
);

const row = Type.Object(
  {
    date: intervalDate,
    organization_id: Type.Optional(Type.String({ description: "Only if grouped by it." })),
    organization_name: Type.Optional(
      nullable(Type.String({ description: "Beside organization_id." })),
    ),
    ...nameFields,
    is_rest: isRestField,
    ...figureFields,
    cost_usd: Type.Number({
      description: "Charges, minus the charges of answers that were never delivered.",
    }),
    provider_cost_usd: Type.Number({
      description:
        "Charges without fees, those of answers that were never delivered included: what providers charge by the catalogue.",
    }),
    fee_usd: Type.Number({ description: "The part of cost_usd that is the fee of the plan." }),
  },
  { title: "GatewayUsageTotals" },
);

const report = Type.Object(
  { data: Type.Array(row), has_more: Type.Boolean(), is_complete: isComplete },
  { title: "GatewayUsageReport" },
);

/** The amounts of a row, in the order of their columns. */
const AMOUNTS = ["cost_usd", "provider_cost_usd", "fee_usd"] as const;

/** Returns the route of usage over all organizations, for operators (contract 15). */
export function gatewayUsageRoutes(sql: Database): RouteDefinition[] {
  return [
    route({
      method: "GET",
      path: "/v1/admin/usage",
      tag: "Operators",
      operationId: "admin.usage.retrieve",
      summary: "Retrieve usage of all organizations",
      description: "Returns requests, tokens, cost, provider cost and fees by hour, day or month.",
      access: { kind: "operator" },
      query,
      responses: {
        200: { description: "Totals, earliest first.", schema: report },
        404: { description: "There is no organization with the id of organization_id." },
      },
      async handle(context) {
        const { format = "json", ...parameters } = context.query;
        const page = intervalPage(parameters);
        const groups = parseGroups(parameters, GROUPS);
        const top = topOf(context.query, groups);
        const found = await find(sql, { ...parameters, page, groups, top });
        const { hasMore, isUpToDate } = found;
        if (format === "csv") {
          const columns = ["date", ...groups.flatMap(columnsOf)];
          const lines = found.rows.map((one) => ({
            names: columns.map((column) => shown(one, page.interval)[column] ?? null),
            figures: one,
            amounts: amountsOf(one),
          }));
          return usageCsv({ columns, amounts: AMOUNTS, lines, hasMore, isUpToDate });
        }
        const data = found.rows.map((one) => ({
          ...shown(one, page.interval),
          ...(top && { is_rest: one.isRest }),
          ...figuresShape(one),
          ...Object.fromEntries(
            Object.entries(amountsOf(one)).map(([name, nano]) => [name, usdNumber(nano)]),
          ),
        }));
        return jsonResponse({ data, has_more: hasMore, is_complete: isUpToDate });
      },
    }),
  ];
}

interface UsageRequest {
  readonly page: ReturnType<typeof intervalPage>;
  readonly groups: readonly Group[];
  readonly top: TopNames | undefined;
  readonly organization_id?: string;
  readonly key_id?: string;
  readonly model?: string;
  readonly provider?: string;
}

interface FoundRow extends Omit<GatewayUsageRow, "names" | "organizationName"> {
  /** Names by the members of the answer. */
  readonly shown: Readonly<Record<string, string | null>>;
}

interface Found {
  readonly rows: readonly FoundRow[];
  readonly hasMore: boolean;
  readonly isUpToDate: boolean;
}

const isOfGateway = (group: Group): group is GatewayGroup =>
  group === "organization" || group === "model" || group === "provider";

async function find(sql: Database, request: UsageRequest): Promise<Found> {
  const {
    organization_id: organizationId,
    key_id: keyId,
    groups,
    page,
    model,
    provider,
    top,
  } = request;
  const name = organizationId === undefined ? undefined : await nameOf(sql, organizationId);
  const detailed = groups.find((group) => !isOfGateway(group));
  if (detailed === undefined && keyId === undefined) {
    const isUpToDate =
      organizationId === undefined
        ? await bringGatewayUpToDate(sql)
        : await bringUsageUpToDate(sql, organizationId);
    const listing = { ...page, groups: groups.filter(isOfGateway), organizationId };
    const { rows, hasMore } = await listGatewayUsage(sql, { ...listing, model, provider, top });
    const found = rows.map(({ names, organizationName = null, ...figures }) => ({
      ...figures,
      shown: shownNames(groups, names, organizationName),
    }));
    return { rows: found, hasMore, isUpToDate };
  }
  if (organizationId === undefined || name === undefined) {
    const needed = keyId === undefined ? `to group by ${detailed}` : "with key_id";
    throw invalidQuery("organization_id", `is needed ${needed}`);
  }
  const isUpToDate = await bringUsageUpToDate(sql, organizationId);
  const { rows, hasMore } = await listUsage(sql, {
    ...{ ...page, organizationId, keyId, model, provider, top },
    groups: groups.filter((group): group is UsageGroup => group !== "organization"),
  });
  const found = rows.map(({ names, ...figures }) => ({
    ...figures,
    shown: shownNames(groups, { ...names, organization: organizationId }, name),
  }));
  return { rows: found, hasMore, isUpToDate };
}

/** Returns the name of an organization. Throws 404 if it does not exist. */
async function nameOf(sql: Database, organizationId: string): Promise<string> {
  const organization = await findOperatedOrganization(sql, organizationId);
  if (organization === undefined) {
    throw new GatewayError("organization_not_found", "No organization with this id exists.");
  }
  return organization.name;
}

function columnsOf(group: Group): readonly string[] {
  return group === "organization" ? ["organization_id", "organization_name"] : [SHOWN_NAMES[group]];
}

function shownNames(
  groups: readonly Group[],
  names: Readonly<Partial<Record<Group, string | null>>>,
  organizationName: string | null,
): Record<string, string | null> {
  return Object.fromEntries(
    groups.flatMap((group) => {
      const [column, nameColumn] = columnsOf(group);
      const entry = [column!, names[group] ?? null] as const;
      return nameColumn === undefined ? [entry] : [entry, [nameColumn, organizationName] as const];
    }),
  );
}

function shown(
  { startMs, shown: names }: FoundRow,
  interval: Parameters<typeof dateOf>[1],
): Record<string, string | null> {
  return { date: dateOf(startMs, interval), ...names };
}

function amountsOf({ costNano, providerCostNano, feeNano }: FoundRow): Amounts {
  return { cost_usd: costNano, provider_cost_usd: providerCostNano, fee_usd: feeNano };
}
