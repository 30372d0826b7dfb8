import type { Database, SqlFragment } from "../client.ts";
import {
  FIGURES,
  figuresIn,
  joined,
  type SummedRow,
  sumsIn,
  type UsageInterval,
  type UsageRow,
} from "./usage.ts";
import { type TopNames, topRows } from "./usage-top.ts";

export const GATEWAY_GROUPS = ["organization", "model", "provider"] as const;
export type GatewayGroup = (typeof GATEWAY_GROUPS)[number];

export interface GatewayUsageListing {
  readonly interval: UsageInterval;
  readonly groups: readonly GatewayGroup[];
  readonly organizationId: string | undefined;
  readonly model: string | undefined;
  readonly provider: string | undefined;
  /** The listing begins with the hour of this time. */
  readonly fromMs: number | undefined;
  /** Hours that begin before it are listed. */
  readonly beforeMs: number | undefined;
  /** Undefined: each name has rows of its own. Needs exactly one group. */
  readonly top?: TopNames | undefined;
  readonly limit: number;
  readonly offset: number;
}

export interface GatewayUsageRow extends Omit<UsageRow, "names" | "isRest"> {
  readonly names: Readonly<Partial<Record<GatewayGroup, string | null>>>;
  /** Undefined unless the usage is grouped by organization. */
  readonly organizationName: string | undefined;
  /** True for the sum of all names that are not among the top. */
  readonly isRest: boolean;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
const COLUMNS = {
  organization: "organization_id",
  model: "model",
  provider: "provider",
} as const satisfies Record<GatewayGroup, string>;

/** Lists usage of all organizations, earliest first, then by organization id, model and provider as grouped. */
export async function listGatewayUsage(
  sql: Database,
  listing: GatewayUsageListing,
): Promise<{ readonly rows: GatewayUsageRow[]; readonly hasMore: boolean }> {
  const { interval, groups, limit, offset, top } = listing;
  const by = joined(
    sql,
    groups.map((group) => sql`, ${sql(COLUMNS[group])} COLLATE "C"`),
  );
  const columns = joined(
    sql,
    groups.map((group) => sql`, ${sql(COLUMNS[group])}`),
  );
  const sums = FIGURES.map((figure) => sql`, sum(${sql(figure)})::text AS ${sql(figure)}`);
  const names = groups.includes("organization");
  const rows = await sql<(SummedRow & { organization_name?: string })[]>`
    SELECT page.* ${names ? sql`, o.name AS organization_name` : sql``} FROM (
      ${
        top === undefined
          ? sql`SELECT date_trunc(${interval}, starts_at, 'UTC') AS starts_at ${columns} ${joined(sql, sums)}
              FROM ${source(sql, listing)} GROUP BY 1 ${columns} ORDER BY 1 ${by}`
          : topRows(sql, {
              ...{ lines: sql`SELECT * FROM ${source(sql, listing)}`, rest: undefined },
              ...{ column: COLUMNS[groups[0]!], figures: FIGURES, interval, ...top },
            })
      }
      LIMIT ${limit + 1} OFFSET ${offset}
    ) page ${names ? sql`LEFT JOIN organizations o ON o.id = page.organization_id` : sql``}
    ORDER BY starts_at ${top === undefined ? sql`` : sql`, is_rest`} ${by}`;
  return {
    rows: rows.slice(0, limit).map((row) => ({
      startMs: row.starts_at.getTime(),
      names: Object.fromEntries(
        groups.map((group) => [group, (row[COLUMNS[group]] as string) || null]),
      ),
      organizationName: row.organization_name,
      isRest: row.is_rest === true,
      ...figuresIn(row),
    })),
    hasMore: rows.length > limit,
  };
}

/**
 * Returns the table with the fewest rows that answers the query, and its condition: the sums over all organizations, the
 * totals of each organization, or the detailed sums.
 */
function source(sql: Database, listing: GatewayUsageListing): SqlFragment {
  const { groups, organizationId, model, provider } = listing;
  const grain = isHourly(listing) ? "hour" : "day";
  const conditions = sql`
    ${model === undefined ? sql`` : sql`AND model = usage_name(${model})`}
    ${provider === undefined ? sql`` : sql`AND provider = usage_name(${provider})`}
    ${within(sql, listing)}`;
  const isOfAll = organizationId === undefined && !groups.includes("organization");
  if (isOfAll) {
    return sql`${sumsIn(sql, "usage_gateway")} WHERE grain = ${grain} ${conditions}`;
  }
  const ofOne = organizationId === undefined ? sql`` : sql`AND organization_id = ${organizationId}`;
  const needsDetails =
    model !== undefined ||
    provider !== undefined ||
    groups.includes("model") ||
    groups.includes("provider");
  // Constants let Postgres choose a partial index.
  const constant = grain === "hour" ? sql`'hour'` : sql`'day'`;
  return needsDetails
    ? sql`${sumsIn(sql, "usage_rollups")} WHERE grain = ${constant} ${ofOne} ${conditions}`
    : sql`${sumsIn(sql, "usage_totals")} WHERE kind = ${constant} ${ofOne} ${conditions}`;
}

function isHourly({ interval, fromMs, beforeMs }: GatewayUsageListing): boolean {
  return interval === "hour" || !isDay(fromMs) || !isDay(beforeMs);
}

function isDay(ms: number | undefined): boolean {
  return ms === undefined || ms % DAY_MS === 0;
}

function within(
  sql: Database,
  { fromMs, beforeMs }: Pick<GatewayUsageListing, "fromMs" | "beforeMs">,
): SqlFragment {
  return sql`
    ${fromMs === undefined ? sql`` : sql`AND starts_at >= ${new Date(fromMs - (fromMs % HOUR_MS))}`}
    ${beforeMs === undefined ? sql`` : sql`AND starts_at < ${new Date(beforeMs)}`}`;
}
