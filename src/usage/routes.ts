import { Type } from "typebox";
import type { Database } from "../../db/client.ts";
import {
  listUsage,
  USAGE_GROUPS,
  type UsageGroup,
  type UsageInterval,
  type UsageRow,
} from "../../db/queries/usage.ts";
import { jsonResponse } from "../http/error-response.ts";
import { type Access, nullable, type RouteDefinition } from "../http/route.ts";
import { isLimited } from "../lib/api-key-record.ts";
import { GatewayError } from "../lib/errors.ts";
import { usdNumber, usdText } from "../lib/money.ts";
import { isoTime, parseIsoTime } from "../lib/utc-time.ts";
import { bringUsageUpToDate } from "./usage.ts";

const MAX_PAGE = 1_000;
const DEFAULT_PAGE = 100;
const MS_PER_SECOND = 1_000;

const usageQuery = Type.Object(
  {
    start_date: Type.Optional(
      Type.String({ maxLength: 64, description: "ISO 8601, inclusive; the hour that it lies in" }),
    ),
    end_date: Type.Optional(
      Type.String({
        maxLength: 64,
        description: "ISO 8601, exclusive; also a date without a time",
      }),
    ),
    interval: Type.Optional(Type.Enum(["hour", "day", "month"], { default: "day" })),
    group_by: Type.Optional(
      Type.String({
        maxLength: 64,
        description: `Some of ${USAGE_GROUPS.join(", ")}, between commas; not both user and tag`,
      }),
    ),
    key_id: Type.Optional(Type.String({ minLength: 1, maxLength: 128 })),
    model: Type.Optional(Type.String({ minLength: 1, maxLength: 1_024 })),
    format: Type.Optional(Type.Enum(["json", "csv"], { default: "json" })),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
    offset: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  },
  { additionalProperties: false },
);

interface UsageQuery {
  readonly start_date?: string;
  readonly end_date?: string;
  readonly interval?: UsageInterval;
  readonly group_by?: string;
  readonly key_id?: string;
  readonly model?: string;
  readonly format?: "json" | "csv";
  readonly limit?: number;
  readonly offset?: number;
}

const name = (description: string) =>
  Type.Optional(nullable(Type.String({ description: `Where grouped by it. ${description}` })));

const usageRow = Type.Object({
  date: Type.String({
    description: "Start of the interval, UTC: a time for an hour, a date for a day or a month",
  }),
  model: name("Null for requests whose model was not found"),
  key_id: name("The key that was charged"),
  provider: name("Null for requests that reached none"),
  user: name("`other`: those beyond the 1,000 largest of a day"),
  tag: name("An entry of metadata.tags; `other` as for users"),
  requests: Type.Integer({ description: "Charged and failed ones" }),
  errors: Type.Integer({ description: "Of these, requests that ended with a status from 400 up" }),
  prompt_tokens: Type.Integer(),
  completion_tokens: Type.Integer(),
  cached_tokens: Type.Integer(),
  reasoning_tokens: Type.Integer(),
  images: Type.Integer(),
  characters: Type.Integer(),
  seconds: Type.Number(),
  cost_usd: Type.Number({ description: "Charges, less those whose answers never left" }),
});

const usageList = Type.Object({ data: Type.Array(usageRow), has_more: Type.Boolean() });

const access: Access = { kind: "administration", scope: "usage:read" };
const tag = "Usage";

/** What was used and charged, by time and by what it is grouped by (contract 7). */
export function usageRoutes(sql: Database): RouteDefinition[] {
  return [
    {
      method: "GET",
      path: "/v1/usage",
      tag,
      summary: "Sum up requests, tokens and cost by hour, day or month",
      access,
      query: usageQuery,
      responses: { 200: { description: "Sums, earliest first", schema: usageList } },
      async handle({ query: asked, caller: { key } }) {
        const query = asked as UsageQuery;
        const { interval = "day", format = "json" } = query;
        const groups = groupsOf(query);
        const span = spanOf(query);
        const own = key.kind === "secret" && isLimited(key) ? key.id : undefined;
        const keyId = query.key_id ?? own;
        const isForeign = own !== undefined && keyId !== own;
        if (!isForeign) await bringUsageUpToDate(sql, key.organizationId);
        const { rows, hasMore } = isForeign
          ? { rows: [], hasMore: false }
          : await listUsage(sql, {
              ...{ organizationId: key.organizationId, interval, groups, keyId, ...span },
              model: query.model,
              limit: query.limit ?? DEFAULT_PAGE,
              offset: query.offset ?? 0,
            });
        if (format === "csv") return csvResponse(rows, groups, interval, hasMore);
        const data = rows.map((row) => usageShape(row, groups, interval));
        return jsonResponse({ data, has_more: hasMore });
      },
    },
  ];
}

/** Throws 400. */
function groupsOf({ group_by: text, interval }: UsageQuery): UsageGroup[] {
  if (text === undefined) return [];
  const groups = text.split(",");
  for (const [place, group] of groups.entries()) {
    if (!USAGE_GROUPS.includes(group as UsageGroup) || groups.indexOf(group) !== place) {
      throw invalid("group_by", `must be some of ${USAGE_GROUPS.join(", ")}, each once`);
    }
  }
  const subjects = groups.filter((group) => group === "user" || group === "tag");
  if (subjects.length > 1) throw invalid("group_by", "cannot have both user and tag");
  if (subjects.length > 0 && interval === "hour") {
    throw invalid("interval", "must be day or month where usage is grouped by user or tag");
  }
  return groups as UsageGroup[];
}

/** Throws 400. */
function spanOf({ start_date: start, end_date: end }: UsageQuery) {
  const fromMs = start === undefined ? undefined : timeOf(start, "start_date");
  const beforeMs = end === undefined ? undefined : timeOf(end, "end_date");
  if (fromMs !== undefined && beforeMs !== undefined && fromMs > beforeMs) {
    throw invalid("start_date", "lies behind end_date");
  }
  return { fromMs, beforeMs };
}

function timeOf(text: string, param: string): number {
  const time = parseIsoTime(text);
  if (time === undefined) throw invalid(param, "must be an ISO 8601 date or time");
  return time.ms;
}

function invalid(param: string, what: string): GatewayError {
  return new GatewayError("invalid_query", `Query parameter "${param}" ${what}.`, { param });
}

const SHOWN_NAMES: Readonly<Record<UsageGroup, string>> = {
  model: "model",
  key: "key_id",
  provider: "provider",
  user: "user",
  tag: "tag",
};

function usageShape(row: UsageRow, groups: readonly UsageGroup[], interval: UsageInterval) {
  return {
    ...names(row, groups, interval),
    ...Object.fromEntries(FIGURES.map(([figure, of]) => [figure, of(row)])),
    cost_usd: usdNumber(row.costNano),
  };
}

function names(
  row: UsageRow,
  groups: readonly UsageGroup[],
  interval: UsageInterval,
): Record<string, string | null> {
  const time = isoTime(row.startMs);
  const shown: Record<string, string | null> = {
    date:
      interval === "hour" ? `${time.slice(0, "YYYY-MM-DDTHH:mm:ss".length)}Z` : time.slice(0, 10),
  };
  for (const group of groups) shown[SHOWN_NAMES[group]] = row.names[group] ?? null;
  return shown;
}

const FIGURES: readonly (readonly [string, (row: UsageRow) => number])[] = [
  ["requests", (row) => row.requests],
  ["errors", (row) => row.errors],
  ["prompt_tokens", (row) => row.promptTokens],
  ["completion_tokens", (row) => row.completionTokens],
  ["cached_tokens", (row) => row.cachedTokens],
  ["reasoning_tokens", (row) => row.reasoningTokens],
  ["images", (row) => row.images],
  ["characters", (row) => row.characters],
  ["seconds", (row) => row.durationMs / MS_PER_SECOND],
];

/** RFC 4180, with a line of names first. Whether there are more says a header. */
function csvResponse(
  rows: readonly UsageRow[],
  groups: readonly UsageGroup[],
  interval: UsageInterval,
  hasMore: boolean,
): Response {
  const columns = groups.map((group) => SHOWN_NAMES[group]);
  const lines = [["date", ...columns, ...FIGURES.map(([figure]) => figure), "cost_usd"]];
  for (const row of rows) {
    const texts = Object.values(names(row, groups, interval)).map((text) => text ?? "");
    const counts = FIGURES.map(([, of]) => String(of(row)));
    lines.push([...texts, ...counts, usdText(row.costNano)]);
  }
  return new Response(lines.map((cells) => `${cells.map(csvCell).join(",")}\r\n`).join(""), {
    headers: {
      "content-type": "text/csv; charset=utf-8",
      "content-disposition": 'attachment; filename="usage.csv"',
      "x-gateway-has-more": String(hasMore),
    },
  });
}

/** A program of sheets would run a cell that begins like this. */
const FORMULA = /^[=+\-@\t\r]/;
const NEEDS_QUOTES = /[",\r\n]/;

function csvCell(text: string): string {
  const cell = FORMULA.test(text) ? `'${text}` : text;
  return NEEDS_QUOTES.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}
