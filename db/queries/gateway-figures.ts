import type { Database, SqlFragment } from "../client.ts";
import { middleMs } from "./usage-latency.ts";

/** A span of time between two hours. */
export interface Period {
  /** Inclusive. */
  readonly fromMs: number;
  /** Exclusive. */
  readonly beforeMs: number;
}

/** Sums of a name, or of all of them. Amounts are nano-USD. */
export interface GatewaySums {
  readonly requests: number;
  readonly errors: number;
  readonly costNano: bigint;
  readonly feeNano: bigint;
  readonly providerCostNano: bigint;
}

export interface Quantiles {
  readonly p50Ms: number;
  readonly p95Ms: number;
}

export interface GatewayTotals extends GatewaySums {
  /** Null if no request was answered. */
  readonly latency: Quantiles | null;
}

/** A model, a provider or an organization. */
export interface NamedSums extends GatewayTotals {
  /** Empty for requests without one. */
  readonly id: string;
  /** Cost of the period before. */
  readonly beforeNano: bigint;
}

export interface OrganizationSums extends NamedSums {
  readonly name: string;
  /** Position by cost, and by the change of cost since the period before. From 1. */
  readonly rank: number;
  readonly changeRank: number;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
const MOST_NAMES = 20;
const MOST_MOVERS = 8;
/**
 * Longest span for which the latencies of organizations are read. They are stored by hour and organization, so a longer
 * span would read too many rows.
 */
const MAX_ORGANIZATION_LATENCY_MS = 8 * DAY_MS;

type Piece = readonly [grain: "hour" | "day", fromMs: number, beforeMs: number];

/** Divides a period into whole days, and hours before and after them. */
function piecesOf({ fromMs, beforeMs }: Period): Piece[] {
  const startMs = Math.floor(fromMs / HOUR_MS) * HOUR_MS;
  const firstDayMs = Math.ceil(startMs / DAY_MS) * DAY_MS;
  const lastDayMs = Math.floor(beforeMs / DAY_MS) * DAY_MS;
  if (firstDayMs >= lastDayMs) return [["hour", startMs, beforeMs]];
  const pieces: Piece[] = [
    ["hour", startMs, firstDayMs],
    ["day", firstDayMs, lastDayMs],
    ["hour", lastDayMs, beforeMs],
  ];
  return pieces.filter(([, from, before]) => from < before);
}

/** Returns the rows of a table in the pieces of a period. */
function rowsIn(
  sql: Database,
  period: Period,
  rowsOf: (grain: "hour" | "day", when: SqlFragment) => SqlFragment,
): SqlFragment {
  return piecesOf(period)
    .map(([grain, fromMs, beforeMs]) =>
      rowsOf(
        grain,
        sql`AND starts_at >= ${new Date(fromMs)} AND starts_at < ${new Date(beforeMs)}`,
      ),
    )
    .reduce((all, one) => sql`${all} UNION ALL ${one}`);
}

interface SumsRow {
  readonly requests: string;
  readonly errors: string;
  readonly cost: string;
  readonly fee: string;
  readonly provider_cost: string;
}

const SUMS = ["requests", "errors", "cost_nano", "fee_nano", "provider_cost_nano"];

/** Returns the sums over all organizations in a period. */
export async function gatewayTotals(sql: Database, period: Period): Promise<GatewayTotals> {
  const [rows, latencies] = await Promise.all([
    sql<SumsRow[]>`
      SELECT coalesce(sum(requests), 0)::text AS requests, coalesce(sum(errors), 0)::text AS errors,
        coalesce(sum(cost_nano), 0)::text AS cost, coalesce(sum(fee_nano), 0)::text AS fee,
        coalesce(sum(provider_cost_nano), 0)::text AS provider_cost
      FROM (${rowsIn(
        sql,
        period,
        (grain, when) => sql`
        SELECT ${sql(SUMS)} FROM usage_gateway WHERE grain = ${grain} ${when}`,
      )}) sums`,
    bucketsBy(sql, period, undefined),
  ]);
  return { ...sumsOf(rows[0]!), latency: latencies.get("") ?? null };
}

/** Lists the models or providers with the largest cost in a period. At most 20. */
export async function gatewayNames(
  sql: Database,
  column: "model" | "provider",
  period: Period,
  before: Period,
): Promise<NamedSums[]> {
  const name = sql(column);
  const rows = (of: Period, isNow: boolean) =>
    rowsIn(
      sql,
      of,
      (grain, when) => sql`
        SELECT ${name} AS id, ${isNow} AS is_now, ${sql(SUMS)}
        FROM usage_gateway WHERE grain = ${grain} ${when}`,
    );
  const [sums, latencies] = await Promise.all([
    sql<(SumsRow & { id: string; before_cost: string })[]>`
      SELECT id, ${summed(sql)}
      FROM (${rows(period, true)} UNION ALL ${rows(before, false)}) sums
      GROUP BY id HAVING count(*) FILTER (WHERE is_now) > 0
      ORDER BY sum(cost_nano) FILTER (WHERE is_now) DESC, sum(requests) FILTER (WHERE is_now) DESC, id
      LIMIT ${MOST_NAMES}`,
    bucketsBy(sql, period, column),
  ]);
  return sums.map((row) => ({
    ...sumsOf(row),
    id: row.id,
    beforeNano: BigInt(row.before_cost),
    latency: latencies.get(row.id) ?? null,
  }));
}

/** Lists organizations with the largest cost in a period, at most 20, and with the largest change of it, at most 8. */
export async function gatewayOrganizations(
  sql: Database,
  period: Period,
  before: Period,
): Promise<OrganizationSums[]> {
  const rows = (of: Period, isNow: boolean) =>
    rowsIn(
      sql,
      of,
      (grain, when) => sql`
        SELECT organization_id AS id, ${isNow} AS is_now, ${sql(SUMS)} FROM usage_totals
        WHERE kind = ${grain === "day" ? sql`'day'` : sql`'hour'`} ${when}`,
    );
  const sums = await sql<
    (SumsRow & {
      id: string;
      name: string | null;
      before_cost: string;
      rank: number;
      change_rank: number;
    })[]
  >`
    SELECT ranked.*, o.name FROM (
      SELECT *, (row_number() OVER (ORDER BY cost::numeric DESC, requests::numeric DESC, id))::integer AS rank,
        (row_number() OVER (ORDER BY abs(cost::numeric - before_cost::numeric) DESC, id))::integer AS change_rank
      FROM (
        SELECT id, ${summed(sql)}
        FROM (${rows(period, true)} UNION ALL ${rows(before, false)}) lines GROUP BY id
      ) sums
    ) ranked LEFT JOIN organizations o ON o.id = ranked.id
    WHERE rank <= ${MOST_NAMES} OR change_rank <= ${MOST_MOVERS} ORDER BY rank`;
  const ids = sums.filter(({ rank }) => rank <= MOST_NAMES).map(({ id }) => id);
  const latencies = await organizationLatencies(sql, period, ids);
  return sums.map((row) => ({
    ...sumsOf(row),
    ...{ id: row.id, name: row.name ?? row.id, rank: row.rank, changeRank: row.change_rank },
    beforeNano: BigInt(row.before_cost),
    latency: latencies.get(row.id) ?? null,
  }));
}

export const isMover = ({ changeRank, costNano, beforeNano }: OrganizationSums): boolean =>
  changeRank <= MOST_MOVERS && costNano !== beforeNano;
export const isLargest = ({ rank, requests }: OrganizationSums): boolean =>
  rank <= MOST_NAMES && requests > 0;

function summed(sql: Database): SqlFragment {
  const now = (column: string) => sql`coalesce(sum(${sql(column)}) FILTER (WHERE is_now), 0)::text`;
  return sql`${now("requests")} AS requests, ${now("errors")} AS errors, ${now("cost_nano")} AS cost,
    ${now("fee_nano")} AS fee, ${now("provider_cost_nano")} AS provider_cost,
    coalesce(sum(cost_nano) FILTER (WHERE NOT is_now), 0)::text AS before_cost`;
}

function sumsOf(row: SumsRow): GatewaySums {
  return {
    requests: Number(row.requests),
    errors: Number(row.errors),
    costNano: BigInt(row.cost),
    feeNano: BigInt(row.fee),
    providerCostNano: BigInt(row.provider_cost),
  };
}

interface BucketRow {
  readonly id: string;
  readonly bucket: number;
  readonly requests: number;
}

/** Returns quantiles by the names of a column. Undefined: of all requests, under the empty name. */
async function bucketsBy(
  sql: Database,
  period: Period,
  column: "model" | "provider" | undefined,
): Promise<Map<string, Quantiles>> {
  const name = column === undefined ? sql`''::text` : sql`${sql(column)}`;
  const rows = await sql<BucketRow[]>`
    SELECT id, bucket, sum(requests)::float8 AS requests
    FROM (${rowsIn(
      sql,
      period,
      (grain, when) => sql`
      SELECT ${name} AS id, bucket, requests FROM usage_gateway_latencies WHERE grain = ${grain} ${when}`,
    )}) counted
    GROUP BY 1, 2 ORDER BY 1, 2`;
  return quantilesOf(rows);
}

async function organizationLatencies(
  sql: Database,
  { fromMs, beforeMs }: Period,
  ids: readonly string[],
): Promise<Map<string, Quantiles>> {
  if (beforeMs - fromMs > MAX_ORGANIZATION_LATENCY_MS || ids.length === 0) return new Map();
  const rows = await sql<BucketRow[]>`
    SELECT organization_id AS id, bucket, sum(requests)::float8 AS requests FROM usage_latencies
    WHERE organization_id = ANY (${sql.array([...ids])}::text[]) AND measure = 'total'
      AND hour >= ${new Date(fromMs)} AND hour < ${new Date(beforeMs)}
    GROUP BY 1, 2 ORDER BY 1, 2`;
  return quantilesOf(rows);
}

const MEDIAN = 0.5;
const HIGH = 0.95;

/** Returns the quantiles of each name. The rows of a name are in the order of their buckets. */
function quantilesOf(rows: readonly BucketRow[]): Map<string, Quantiles> {
  const byName = Map.groupBy(rows, ({ id }) => id);
  return new Map(
    [...byName].map(([id, buckets]) => {
      const total = buckets.reduce((sum, { requests }) => sum + requests, 0);
      const quantile = (share: number): number => {
        let upTo = 0;
        const found = buckets.find(({ requests }) => {
          upTo += requests;
          return upTo >= total * share;
        });
        return middleMs(found!.bucket);
      };
      return [id, { p50Ms: quantile(MEDIAN), p95Ms: quantile(HIGH) }] as const;
    }),
  );
}
