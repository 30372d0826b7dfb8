import { Type } from "typebox";
import type { Database } from "../../../db/client.ts";
import { findNames, type NamedKind } from "../../../db/queries/object-names.ts";
import {
  listUsage,
  USAGE_GROUPS,
  type UsageGroup,
  type UsageInterval,
  type UsageRow,
} from "../../../db/queries/usage.ts";
import { listLatencies } from "../../../db/queries/usage-latency.ts";
import { USAGE_METRICS, type UsageMetric } from "../../../db/queries/usage-top.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { shownKeys } from "../../http/limited-keys.ts";
import { type Access, nullable, type RouteDefinition, route } from "../../http/route.ts";
import type { ApiKeyRecord } from "../../lib/api-key-record.ts";
import { usdNumber } from "../../lib/money.ts";
import { showsNames } from "../export-columns.ts";
import {
  dateOf,
  type IntervalQuery,
  intervalDate,
  intervalFields,
  intervalPage,
  invalidQuery,
} from "./interval-query.ts";
import { bringUsageUpToDate } from "./usage.ts";
import { figureFields, figuresShape, isComplete, usageCsv } from "./usage-report.ts";

/** Most names with rows of their own. */
const MAX_TOP = 200;
/** Longest time with `top`, in days. */
const MAX_TOP_DAYS = 400;
const DAY_MS = 86_400_000;
const id = { minLength: 1, maxLength: 128 };

/** Query parameters of a ranking. */
export const topFields = {
  top: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: MAX_TOP,
      description:
        "With one group: the number of names that have rows. All others are summed in one row of each interval.",
    }),
  ),
  top_by: Type.Optional(
    Type.Enum(USAGE_METRICS, {
      default: "cost_usd",
      description: "The figure whose sum over all intervals ranks the names.",
    }),
  ),
};

const usageQuery = Type.Object(
  {
    ...intervalFields,
    group_by: Type.Optional(
      Type.String({
        maxLength: 64,
        description: `A comma-separated list of ${USAGE_GROUPS.join(", ")}; not both user and tag, nor these with team or member.`,
      }),
    ),
    ...topFields,
    key_id: Type.Optional(Type.String(id)),
    model: Type.Optional(Type.String({ minLength: 1, maxLength: 1_024 })),
    team_id: Type.Optional(
      Type.String({ ...id, description: "Only usage of keys that are in this team now." }),
    ),
    member_id: Type.Optional(
      Type.String({ ...id, description: "Only usage of keys that this member owns now." }),
    ),
    format: Type.Optional(Type.Enum(["json", "csv"], { default: "json" })),
  },
  { additionalProperties: false },
);

interface UsageQuery extends IntervalQuery {
  readonly group_by?: string;
  readonly top?: number;
  readonly top_by?: UsageMetric;
  readonly key_id?: string;
  readonly model?: string;
  readonly team_id?: string;
  readonly member_id?: string;
  readonly format?: "json" | "csv";
}

const name = (description: string) =>
  Type.Optional(nullable(Type.String({ description: `Only if grouped by it. ${description}.` })));

export const isRestField = Type.Optional(
  Type.Boolean({ description: "Only with `top`. True for the sum of all other names." }),
);

/** The names of a row of usage. */
export const nameFields = {
  model: name("Null for requests whose model was not found"),
  key_id: name("The key that was charged"),
  provider: name("Null for requests that reached no provider"),
  team_id: name("The team that the key has now; null for keys without a team"),
  member_id: name("The owner that the key has now; null for keys without an owner"),
  user: name("`other`: users beyond the 1,000 largest of a day"),
  tag: name("An entry of metadata.tags; `other` as for users"),
};

const usageRow = Type.Object(
  {
    date: intervalDate,
    ...nameFields,
    is_rest: isRestField,
    ...figureFields,
    cost_usd: Type.Number({
      description: "Charges, minus the charges of answers that were never delivered.",
    }),
  },
  { title: "UsageTotals" },
);

const usageList = Type.Object(
  {
    data: Type.Array(usageRow),
    has_more: Type.Boolean(),
    is_complete: isComplete,
  },
  { title: "UsageReport" },
);

const latencyRow = Type.Object(
  {
    date: intervalDate,
    requests: Type.Integer({ description: "Charged requests that did not fail." }),
    p50_ms: Type.Integer({
      description: "From the request to the end of its response, accurate to 5 %.",
    }),
    p95_ms: Type.Integer(),
    streams: Type.Integer({
      description: "Streams among these with a recorded time to the first event.",
    }),
    first_token_p50_ms: nullable(Type.Integer()),
    first_token_p95_ms: nullable(Type.Integer()),
  },
  { title: "LatencyQuantiles" },
);

const latencyList = Type.Object(
  {
    data: Type.Array(latencyRow),
    has_more: Type.Boolean(),
    is_complete: isComplete,
  },
  { title: "LatencyReport" },
);

const access: Access = { kind: "administration", scope: "usage:read" };
const tag = "Usage";

/** Returns the routes of usage and cost by time interval and group (contract 7). */
export function usageRoutes(sql: Database): RouteDefinition[] {
  return [
    {
      method: "GET",
      path: "/v1/usage",
      tag,
      operationId: "usage.retrieve",
      summary: "Retrieve usage",
      description: "Returns requests, tokens and cost by hour, day or month.",
      access,
      query: usageQuery,
      responses: { 200: { description: "Totals, earliest first.", schema: usageList } },
      async handle({ query: params, caller: { key } }) {
        const query = params as UsageQuery;
        const { format = "json" } = query;
        const page = intervalPage(query);
        const { interval } = page;
        const groups = parseGroups(query, USAGE_GROUPS);
        const top = topOf(query, groups);
        const { keyId: onlyKeyId, memberId: onlyMemberId } = shownKeys(key);
        const keyId = query.key_id ?? onlyKeyId;
        const memberId = query.member_id ?? onlyMemberId;
        const isOtherKey =
          (onlyKeyId !== undefined && keyId !== onlyKeyId) ||
          (onlyMemberId !== undefined && memberId !== onlyMemberId);
        const isUpToDate = isOtherKey || (await bringUsageUpToDate(sql, key.organizationId));
        const { rows, hasMore } = isOtherKey
          ? { rows: [], hasMore: false }
          : await listUsage(sql, {
              ...page,
              ...{ organizationId: key.organizationId, groups, keyId, model: query.model },
              ...{ teamId: query.team_id, memberId, top },
            });
        if (format === "csv") {
          const named = await namesBesideIds(sql, key, groups, rows);
          const lines = rows.map((row) => ({
            names: [dateOf(row.startMs, interval), ...named.of(row)],
            figures: row,
            amounts: { cost_usd: row.costNano },
          }));
          const columns = ["date", ...named.columns];
          return usageCsv({ columns, amounts: ["cost_usd"], lines, hasMore, isUpToDate });
        }
        const data = rows.map((row) => ({
          ...usageShape(row, groups, interval),
          ...(top && { is_rest: row.isRest }),
        }));
        return jsonResponse({ data, has_more: hasMore, is_complete: isUpToDate });
      },
    },
    route({
      method: "GET",
      path: "/v1/usage/latency",
      tag,
      operationId: "usage.latency.retrieve",
      summary: "Retrieve request latency",
      description: "Returns quantiles by hour, day or month.",
      access,
      query: Type.Object(intervalFields, { additionalProperties: false }),
      responses: {
        200: {
          description: "Latency quantiles of each interval, earliest first.",
          schema: latencyList,
        },
      },
      async handle({ query, caller: { key } }) {
        const page = intervalPage(query);
        const { organizationId } = key;
        const isUpToDate = await bringUsageUpToDate(sql, organizationId);
        const { rows, hasMore } = await listLatencies(sql, { organizationId, ...page });
        const data = rows.map(({ startMs, total, firstToken }) => ({
          date: dateOf(startMs, page.interval),
          requests: total.requests,
          p50_ms: total.p50Ms,
          p95_ms: total.p95Ms,
          streams: firstToken?.requests ?? 0,
          first_token_p50_ms: firstToken?.p50Ms ?? null,
          first_token_p95_ms: firstToken?.p95Ms ?? null,
        }));
        return jsonResponse({ data, has_more: hasMore, is_complete: isUpToDate });
      },
    }),
  ];
}

/**
 * Returns the groups of the query. Throws 400 if a group is unknown or repeated, or if the groups cannot be
 * combined with each other or with the interval.
 */
export function parseGroups<Group extends string>(
  { group_by: text, interval }: Pick<UsageQuery, "group_by" | "interval">,
  allowed: readonly Group[],
): Group[] {
  if (text === undefined) return [];
  const groups: readonly string[] = text.split(",");
  for (const [index, group] of groups.entries()) {
    if (!allowed.includes(group as Group) || groups.indexOf(group) !== index) {
      throw invalidQuery("group_by", `must be a list of ${allowed.join(", ")}, each at most once`);
    }
  }
  const subjects = groups.filter((group) => group === "user" || group === "tag");
  if (subjects.length > 1) throw invalidQuery("group_by", "cannot have both user and tag");
  if (subjects.length > 0 && (groups.includes("team") || groups.includes("member"))) {
    throw invalidQuery("group_by", "cannot have user or tag with team or member");
  }
  if (subjects.length > 0 && interval === "hour") {
    throw invalidQuery("interval", "must be day or month if usage is grouped by user or tag");
  }
  return groups as Group[];
}

/** Returns the number and the rank of the names that have rows. Throws 400 if the other parameters do not fit. */
export function topOf(
  query: Pick<UsageQuery, keyof IntervalQuery | "top" | "top_by" | "format">,
  groups: readonly string[],
) {
  const { top, top_by: by, format } = query;
  if (top === undefined && by === undefined) return undefined;
  if (top === undefined) throw invalidQuery("top_by", "needs top");
  // The ranking reads all rows of the time, so the time has a limit.
  const { fromMs = Number.NEGATIVE_INFINITY, beforeMs = Number.POSITIVE_INFINITY } =
    intervalPage(query);
  if (beforeMs - fromMs > MAX_TOP_DAYS * DAY_MS) {
    throw invalidQuery(
      "top",
      `needs start_date and end_date, at most ${MAX_TOP_DAYS} days from each other`,
    );
  }
  if (groups.length !== 1) throw invalidQuery("top", "needs exactly one group in group_by");
  if (format === "csv") throw invalidQuery("top", "cannot be used with format=csv");
  return { count: top, by: by ?? "cost_usd" };
}

/** The members of a row that name its groups. */
export const SHOWN_NAMES = {
  model: "model",
  key: "key_id",
  provider: "provider",
  team: "team_id",
  member: "member_id",
  user: "user",
  tag: "tag",
} as const satisfies Record<UsageGroup, string>;

function usageShape(row: UsageRow, groups: readonly UsageGroup[], interval: UsageInterval) {
  return {
    ...names(row, groups, interval),
    ...figuresShape(row),
    cost_usd: usdNumber(row.costNano),
  };
}

function names(
  row: UsageRow,
  groups: readonly UsageGroup[],
  interval: UsageInterval,
): Record<string, string | null> {
  const shown: Record<string, string | null> = { date: dateOf(row.startMs, interval) };
  for (const group of groups) shown[SHOWN_NAMES[group]] = row.names[group] ?? null;
  return shown;
}

/** Groups whose names are beside their ids in CSV. */
const NAMED_GROUPS: Readonly<
  Partial<Record<UsageGroup, readonly [kind: NamedKind, title: string]>>
> = {
  key: ["key", "key_name"],
  team: ["team", "team_name"],
  member: ["member", "member_name"],
};

/** Returns the columns of groups in CSV, and their cells in a row: ids, each with its name if it has one. */
async function namesBesideIds(
  sql: Database,
  caller: ApiKeyRecord,
  groups: readonly UsageGroup[],
  rows: readonly UsageRow[],
) {
  const found = new Map<UsageGroup, ReadonlyMap<string, string>>();
  for (const group of groups) {
    const named = NAMED_GROUPS[group];
    if (named === undefined) continue;
    const ids = showsNames(caller) ? rows.flatMap((row) => row.names[group] ?? []) : [];
    found.set(group, await findNames(sql, caller.organizationId, named[0], ids));
  }
  return {
    columns: groups.flatMap((group) => [SHOWN_NAMES[group], NAMED_GROUPS[group]?.[1] ?? []].flat()),
    of: (row: UsageRow): (string | null)[] =>
      groups.flatMap((group) => {
        const id = row.names[group] ?? null;
        const names = found.get(group);
        return names === undefined ? [id] : [id, id === null ? null : (names.get(id) ?? null)];
      }),
  };
}
