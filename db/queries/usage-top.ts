import type { Database, SqlFragment } from "../client.ts";

/** Figures by which names are ranked, with the columns that are summed. */
const METRICS = {
  cost_usd: ["cost_nano"],
  requests: ["requests"],
  errors: ["errors"],
  tokens: ["prompt_tokens", "completion_tokens"],
} as const;
export type UsageMetric = keyof typeof METRICS;
export const USAGE_METRICS = Object.keys(METRICS) as UsageMetric[];

/** The names that have rows of their own. The rows of all others are summed in one row of each interval. */
export interface TopNames {
  /** Number of names with the largest sums over all lines. */
  readonly count: number;
  readonly by: UsageMetric;
}

interface RankedLines extends TopNames {
  /** Rows with `starts_at`, the column and the figures. */
  readonly lines: SqlFragment;
  readonly column: string;
  /** Name of lines that are sums of others. It has no rank. Undefined if there is none. */
  readonly rest: string | undefined;
  /** Columns to sum. */
  readonly figures: readonly string[];
  readonly interval: "hour" | "day" | "month";
}

/**
 * Returns the sums of the names with the largest sums, and of all others together, by interval. In the rows of the
 * others, `is_rest` is true and the name is null.
 */
export function topRows(sql: Database, ranked: RankedLines): SqlFragment {
  const { lines, column, rest, figures, interval, count, by } = ranked;
  const name = sql(column);
  const rank = METRICS[by].reduce((sum, metric) => sql`${sum} + sum(${sql(metric)})`, sql`0`);
  const sums = figures.reduce(
    (all, figure) => sql`${all}, sum(${sql(figure)})::text AS ${sql(figure)}`,
    sql``,
  );
  return sql`
    WITH lines AS MATERIALIZED (${lines}), largest AS (
      SELECT ${name} AS name FROM lines ${rest === undefined ? sql`` : sql`WHERE ${name} <> ${rest}`}
      GROUP BY 1 ORDER BY ${rank} DESC, ${name} COLLATE "C" LIMIT ${count}
    )
    SELECT date_trunc(${interval}, starts_at, 'UTC') AS starts_at, largest.name IS NULL AS is_rest,
      largest.name COLLATE "C" AS ${name} ${sums}
    FROM lines LEFT JOIN largest ON largest.name = lines.${name}
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`;
}
