import { SUMMED_UNITS } from "../../src/lib/units.ts";
import { isoTime } from "../../src/lib/utc-time.ts";
import type { Database, SqlFragment } from "../client.ts";
import { type TopNames, topRows } from "./usage-top.ts";

export const USAGE_GROUPS = ["model", "key", "provider", "team", "member", "user", "tag"] as const;
export type UsageGroup = (typeof USAGE_GROUPS)[number];
export type UsageInterval = "hour" | "day" | "month";

export interface UsageListing {
  readonly organizationId: string;
  readonly interval: UsageInterval;
  /**
   * Has at most one of `user` and `tag`, and neither if the interval is `hour` or if it has `team` or `member`. The team
   * and the member are those that the key has now.
   */
  readonly groups: readonly UsageGroup[];
  readonly keyId: string | undefined;
  readonly model: string | undefined;
  readonly provider?: string | undefined;
  /** Only usage of keys that have this team now. */
  readonly teamId?: string | undefined;
  /** Only usage of keys that have this owner now. */
  readonly memberId?: string | undefined;
  /** The listing begins with the hour of this time; for users and tags, with its day. */
  readonly fromMs: number | undefined;
  /** Hours, or days, that begin before it are listed. */
  readonly beforeMs: number | undefined;
  /** Undefined: each name has rows of its own. Needs exactly one group. */
  readonly top?: TopNames | undefined;
  readonly limit: number;
  readonly offset: number;
}

export interface UsageRow {
  readonly startMs: number;
  /** Names by group. Null for requests that have none. */
  readonly names: Readonly<Partial<Record<UsageGroup, string | null>>>;
  /** True for the sum of all names that are not among the top. */
  readonly isRest: boolean;
  readonly requests: number;
  readonly errors: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cachedTokens: number;
  readonly reasoningTokens: number;
  readonly images: number;
  readonly characters: number;
  readonly durationMs: number;
  readonly searchUnits: number;
  readonly costNano: bigint;
  readonly feeNano: bigint;
  readonly providerCostNano: bigint;
  /** Sums of `UNITS_WITHOUT_COLUMN`, by their stored names. */
  readonly quantities: Readonly<Record<string, number>>;
}

interface UsagePage {
  readonly rows: UsageRow[];
  readonly hasMore: boolean;
}

/**
 * Largest number of users, and of tags, of a day that are listed separately. The others are `other`.
 */
const MAX_SUBJECTS_A_DAY = 1_000;
const OTHERS = "other";
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;

const FIGURE_COLUMNS = [
  "requests",
  "errors",
  "prompt_tokens",
  "completion_tokens",
  "cached_tokens",
  "reasoning_tokens",
  "images",
  "characters",
  "duration_ms",
  "search_units",
  "cost_nano",
  "fee_nano",
  "provider_cost_nano",
];

/** Units whose sums are in the column `quantities`. */
export const UNITS_WITHOUT_COLUMN = SUMMED_UNITS.filter(
  ({ stored }) => !FIGURE_COLUMNS.includes(stored),
);
export const FIGURES = [...FIGURE_COLUMNS, ...UNITS_WITHOUT_COLUMN.map(({ stored }) => stored)];

/** Returns the rows of a table of sums, with the units that have no column as columns. */
export function sumsIn(
  sql: Database,
  table: "usage_rollups" | "usage_subjects" | "usage_totals" | "usage_gateway",
): SqlFragment {
  const columns = UNITS_WITHOUT_COLUMN.map(
    ({ stored }) => sql`, coalesce((quantities->>${stored}::text)::bigint, 0) AS ${sql(stored)}`,
  );
  return sql`(SELECT * ${joined(sql, columns)} FROM ${sql(table)}) sums`;
}

/** Lists usage, earliest first, then by names. */
export async function listUsage(sql: Database, listing: UsageListing): Promise<UsagePage> {
  const { interval, groups, limit, offset, top } = listing;
  const lines = (await findTotals(sql, listing)) ?? detailedLines(sql, listing);
  if (top !== undefined) {
    const column = COLUMNS[groups[0]!];
    const rest = column === "value" ? OTHERS : undefined;
    const ranked = { lines: lines.rows, column, rest, figures: FIGURES, interval, ...top };
    return pageOf(
      await sql<SummedRow[]>`${topRows(sql, ranked)} LIMIT ${limit + 1} OFFSET ${offset}`,
      listing,
    );
  }
  // A query in the order of the list reads only the page.
  const isInOrder = lines.interval === interval;
  const isSummed = !isInOrder || !lines.areTotals;
  const by = groups.map((group) => sql`, ${sql(COLUMNS[group])} COLLATE "C"`);
  const figures = FIGURES.map((figure) =>
    isSummed
      ? sql`, sum(${sql(figure)})::text AS ${sql(figure)}`
      : sql`, ${sql(figure)}::text AS ${sql(figure)}`,
  );
  const rows = await sql<SummedRow[]>`
    SELECT ${isInOrder ? sql`` : sql`date_trunc(${interval}, starts_at, 'UTC') AS`} starts_at
      ${joined(sql, by)} ${joined(sql, figures)}
    FROM (${lines.rows}) lines
    ${isSummed ? sql`GROUP BY 1 ${joined(sql, by)}` : sql``}
    ORDER BY 1 ${joined(sql, by)} LIMIT ${limit + 1} OFFSET ${offset}`;
  return pageOf(rows, listing);
}

function pageOf(rows: readonly SummedRow[], { groups, limit }: UsageListing): UsagePage {
  return {
    rows: rows.slice(0, limit).map((row) => usageRow(row, groups)),
    hasMore: rows.length > limit,
  };
}

const COLUMNS = {
  model: "model",
  key: "key_id",
  provider: "provider",
  team: "team_id",
  member: "owner_id",
  user: "value",
  tag: "value",
} as const satisfies Record<UsageGroup, string>;

export function joined(sql: Database, fragments: readonly SqlFragment[]): SqlFragment {
  return fragments.reduce((all, one) => sql`${all}${one}`, sql``);
}

interface Lines {
  readonly rows: SqlFragment;
  /** Interval of each row. */
  readonly interval: UsageInterval;
  /** True if each name occurs once in an interval. */
  readonly areTotals: boolean;
}

/** Returns rows of `usage_totals`. Returns undefined if these cannot answer the query, or are incomplete. */
async function findTotals(sql: Database, listing: UsageListing): Promise<Lines | undefined> {
  const { interval, groups } = listing;
  const [group] = groups;
  const kind = kindOfTotals(listing);
  if (kind === undefined || !(await haveTotals(sql, listing))) return undefined;
  const rowsOf: RowsWhen =
    group === "user" || group === "tag"
      ? (when) => subjectTotals(sql, listing, group, when)
      : (when) => sql`
          SELECT starts_at, value AS key_id, ${sql(FIGURES)} ${ownerColumns(sql, listing)}
          ${totalsOf(sql, listing, kind, sql`${matching(sql, listing)} ${when}`, ownersOf(sql, listing, "value"))}`;
  return interval === "month" || dependsOnOwners(listing)
    ? { rows: summedTotals(sql, listing, kind, rowsOf), interval, areTotals: true }
    : { rows: rowsOf(sql``), interval: kind === "hour" ? "hour" : "day", areTotals: true };
}

/** Returns the kind of `usage_totals` that answers the query. Returns undefined if none does. */
function kindOfTotals(listing: UsageListing): string | undefined {
  const { groups, keyId, model, provider } = listing;
  const [group, ...further] = groups;
  if (keyId !== undefined || model !== undefined || provider !== undefined) return undefined;
  if (dependsOnKeys(listing)) {
    const isOfKeys = groups.every((one) => one === "key" || one === "team" || one === "member");
    return isOfKeys && !isHourly(listing) ? "key_day" : undefined;
  }
  if (group === undefined) return isHourly(listing) ? "hour" : "day";
  return (group === "user" || group === "tag") && further.length === 0 ? group : undefined;
}

function dependsOnKeys(listing: UsageListing): boolean {
  const { groups, keyId } = listing;
  return keyId !== undefined || groups.includes("key") || dependsOnOwners(listing);
}

/** Returns true if the query needs the teams or the owners of keys. */
function dependsOnOwners({ groups, teamId, memberId }: UsageListing): boolean {
  const isFiltered = teamId !== undefined || memberId !== undefined;
  return isFiltered || groups.includes("team") || groups.includes("member");
}

/** Returns a join with the team and the owner that the key in this column has now, if the query needs them. */
function ownersOf(sql: Database, listing: UsageListing, keyColumn: string): SqlFragment {
  if (!dependsOnOwners(listing)) return sql``;
  return sql`LEFT JOIN (
      SELECT id AS owned_key, team_id, owner_id FROM api_keys
      WHERE organization_id = ${listing.organizationId}
    ) owners ON owned_key = ${sql(keyColumn)}`;
}

/** Returns the joined team and owner. They are empty for keys that have none. */
function ownerColumns(sql: Database, listing: UsageListing): SqlFragment {
  if (!dependsOnOwners(listing)) return sql``;
  return sql`, coalesce(team_id, '') AS team_id, coalesce(owner_id, '') AS owner_id`;
}

async function haveTotals(sql: Database, listing: UsageListing): Promise<boolean> {
  const { organizationId, fromMs } = listing;
  const [cursor] = await sql<{ have: boolean }[]>`
    SELECT totals_since <= ${fromMs === undefined ? sql`'-infinity'` : new Date(startOf(fromMs, DAY_MS))}
      AS have
    FROM usage_cursors WHERE organization_id = ${organizationId}`;
  return cursor?.have ?? true;
}

type RowsWhen = (when: SqlFragment) => SqlFragment;

function totalsOf(
  sql: Database,
  listing: UsageListing,
  kind: string,
  when: SqlFragment,
  join = sql``,
): SqlFragment {
  return sql`FROM ${sumsIn(sql, "usage_totals")} ${join}
    WHERE organization_id = ${listing.organizationId} AND kind = ${kind} ${within(sql, listing)} ${when}`;
}

/** Sums the rows by interval and group, so that a page reads no further than its last interval. */
function summedTotals(
  sql: Database,
  listing: UsageListing,
  kind: string,
  rowsOf: RowsWhen,
): SqlFragment {
  const { interval, groups } = listing;
  const step = interval === "month" ? sql`interval '1 month'` : sql`interval '24 hours'`;
  const by = groups.map((group) => sql`, ${sql(COLUMNS[group])}`);
  const sums = FIGURES.map((figure) => sql`, sum(${sql(figure)}) AS ${sql(figure)}`);
  const inInterval = sql`AND starts_at >= start AND starts_at < start + ${step}`;
  return sql`
    SELECT start AS starts_at, of_interval.*
    FROM (
      SELECT generate_series(date_trunc(${interval}, min(starts_at), 'UTC'), max(starts_at),
        ${step}) AS start
      ${totalsOf(sql, listing, kind, sql``)} ORDER BY start
    ) intervals CROSS JOIN LATERAL (
      SELECT count(*) ${joined(sql, by)} ${joined(sql, sums)}
      FROM (${rowsOf(inInterval)}) lines
      GROUP BY start ${joined(sql, by)}
    ) of_interval`;
}

/**
 * Returns the totals of users or tags by day. The subjects with the largest cost of each day are looked up, and
 * `others` is the remainder of the total, including a subject that has this name. Each request has one user, so the
 * total of all users is the total of the day.
 */
function subjectTotals(
  sql: Database,
  listing: UsageListing,
  group: "user" | "tag",
  when: SqlFragment,
): SqlFragment {
  // Written as constants, so that Postgres chooses a partial index.
  const kind = group === "user" ? sql`'user'` : sql`'tag'`;
  const whole = group === "user" ? sql`'day'` : sql`'tag', 'other_tag'`;
  const each = (value: (figure: string) => SqlFragment) =>
    joined(
      sql,
      FIGURES.map((figure) => sql`, ${value(figure)} AS ${sql(figure)}`),
    );
  const figures = each((figure) => sql`${sql(figure)}`);
  const sums = each((figure) => sql`coalesce(sum(${sql(figure)}), 0)::bigint`);
  const ofDay = (kinds: SqlFragment) => sql`
    FROM ${sumsIn(sql, "usage_totals")} WHERE organization_id = ${listing.organizationId} AND kind IN (${kinds}) AND starts_at = day`;
  return sql`
    SELECT day AS starts_at, of_day.*
    FROM (
      SELECT generate_series(min(starts_at), max(starts_at), interval '24 hours') AS day
      ${totalsOf(sql, listing, group, when)} ORDER BY day
    ) days CROSS JOIN LATERAL (
      WITH named AS MATERIALIZED (
        (SELECT value ${figures} ${ofDay(kind)} AND value NOT IN ('', ${OTHERS})
          ORDER BY cost_nano DESC, requests DESC, value COLLATE "C" LIMIT ${MAX_SUBJECTS_A_DAY})
        UNION ALL SELECT value ${figures} ${ofDay(kind)} AND value = ''
      )
      SELECT * FROM named
      UNION ALL
      SELECT ${OTHERS} ${each((figure) => sql`w.${sql(figure)} - n.${sql(figure)}`)}
      FROM (SELECT 0 ${sums} ${ofDay(whole)}) w, (SELECT 0 ${sums} FROM named) n
      WHERE w <> n
    ) of_day`;
}

/** Returns the sums by key, model and provider. */
function detailedLines(sql: Database, listing: UsageListing): Lines {
  const subject = listing.groups.find((group) => group === "user" || group === "tag");
  if (subject !== undefined) {
    return { rows: subjects(sql, listing, subject), interval: "day", areTotals: false };
  }
  const interval = isHourly(listing) ? "hour" : "day";
  return { rows: rollups(sql, listing, interval), interval, areTotals: false };
}

function rollups(sql: Database, listing: UsageListing, interval: "hour" | "day"): SqlFragment {
  const { organizationId } = listing;
  const grain = `${dependsOnKeys(listing) ? "key_" : ""}${interval}`;
  return sql`SELECT sums.* ${ownerColumns(sql, listing)}
    FROM ${sumsIn(sql, "usage_rollups")} ${ownersOf(sql, listing, "key_id")}
    WHERE organization_id = ${organizationId} AND grain = ${grain} ${matching(sql, listing)}
      ${within(sql, listing)}`;
}

/** Returns true if hours must be read. Whole days are read as days. */
function isHourly({ interval, fromMs, beforeMs }: UsageListing): boolean {
  return interval === "hour" || !isDay(fromMs) || !isDay(beforeMs);
}

/**
 * Returns the largest by cost, or by requests if the costs are equal. It sums by the requested groups before it ranks,
 * because rows are per user, key, model and provider.
 */
function subjects(sql: Database, listing: UsageListing, kind: "user" | "tag"): SqlFragment {
  const { organizationId, groups, fromMs, beforeMs } = listing;
  const further = groups
    .filter((group) => group !== kind)
    .map((group) => sql`, ${sql(COLUMNS[group])}`);
  const by = joined(sql, further);
  const sums = FIGURES.map((figure) => sql`, sum(${sql(figure)}) AS ${sql(figure)}`);
  return sql`
    SELECT day::timestamp AT TIME ZONE 'UTC' AS starts_at ${by},
      CASE WHEN kind = ${kind} AND (value = '' OR place <= ${MAX_SUBJECTS_A_DAY}) THEN value
        ELSE ${OTHERS} END AS value, ${sql(FIGURES)}
    FROM (
      SELECT *, dense_rank() OVER (PARTITION BY kind, day, value IN ('', ${OTHERS})
        ORDER BY total_nano DESC, total_requests DESC, value COLLATE "C") AS place
      FROM (
        SELECT kind, day, value ${by} ${joined(sql, sums)}, sum(sum(cost_nano)) OVER of_value AS total_nano,
          sum(sum(requests)) OVER of_value AS total_requests
        FROM ${sumsIn(sql, "usage_subjects")} ${ownersOf(sql, listing, "key_id")}
        WHERE organization_id = ${organizationId} AND kind IN (${kind}, ${`other_${kind}`})
          ${matching(sql, listing)}
          ${fromMs === undefined ? sql`` : sql`AND day >= ${dayOf(fromMs)}::date`}
          ${beforeMs === undefined ? sql`` : sql`AND day <= ${dayOf(beforeMs - 1)}::date`}
        GROUP BY kind, day, value ${by}
        WINDOW of_value AS (PARTITION BY kind, day, value)
      ) summed
    ) ranked`;
}

/** Compares names as usage_name shortens the stored ones. */
function matching(sql: Database, listing: UsageListing): SqlFragment {
  const { keyId, model, provider, teamId, memberId } = listing;
  return sql`${keyId === undefined ? sql`` : sql`AND key_id = ${keyId}`}
    ${model === undefined ? sql`` : sql`AND model = usage_name(${model})`}
    ${provider === undefined ? sql`` : sql`AND provider = usage_name(${provider})`}
    ${teamId === undefined ? sql`` : sql`AND team_id = ${teamId}`}
    ${memberId === undefined ? sql`` : sql`AND owner_id = ${memberId}`}`;
}

/**
 * Returns the condition on times. For users and tags, it includes each whole day that the span touches.
 */
function within(sql: Database, { groups, fromMs, beforeMs }: UsageListing): SqlFragment {
  const unitMs = groups.includes("user") || groups.includes("tag") ? DAY_MS : HOUR_MS;
  return sql`
    ${fromMs === undefined ? sql`` : sql`AND starts_at >= ${new Date(startOf(fromMs, unitMs))}`}
    ${beforeMs === undefined ? sql`` : sql`AND starts_at < ${new Date(beforeMs)}`}`;
}

function isDay(ms: number | undefined): boolean {
  return ms === undefined || startOf(ms, DAY_MS) === ms;
}

function startOf(ms: number, unitMs: number): number {
  return Math.floor(ms / unitMs) * unitMs;
}

function dayOf(ms: number): string {
  return isoTime(ms).slice(0, 10);
}

export interface SummedRow extends Readonly<Record<string, unknown>> {
  readonly starts_at: Date;
  readonly is_rest?: boolean;
  readonly model?: string;
  readonly key_id?: string;
  readonly provider?: string;
  readonly team_id?: string;
  readonly owner_id?: string;
  readonly value?: string;
  readonly requests: string;
  readonly errors: string;
  readonly prompt_tokens: string;
  readonly completion_tokens: string;
  readonly cached_tokens: string;
  readonly reasoning_tokens: string;
  readonly images: string;
  readonly characters: string;
  readonly duration_ms: string;
  readonly search_units: string;
  readonly cost_nano: string;
  readonly fee_nano: string;
  readonly provider_cost_nano: string;
}

function usageRow(row: SummedRow, groups: readonly UsageGroup[]): UsageRow {
  return {
    startMs: row.starts_at.getTime(),
    names: Object.fromEntries(groups.map((group) => [group, row[COLUMNS[group]] || null])),
    isRest: row.is_rest === true,
    ...figuresIn(row),
  };
}

/** Returns the figures of a row of sums. */
export function figuresIn(row: SummedRow): Omit<UsageRow, "startMs" | "names" | "isRest"> {
  return {
    requests: Number(row.requests),
    errors: Number(row.errors),
    promptTokens: Number(row.prompt_tokens),
    completionTokens: Number(row.completion_tokens),
    cachedTokens: Number(row.cached_tokens),
    reasoningTokens: Number(row.reasoning_tokens),
    images: Number(row.images),
    characters: Number(row.characters),
    durationMs: Number(row.duration_ms),
    searchUnits: Number(row.search_units),
    costNano: BigInt(row.cost_nano),
    feeNano: BigInt(row.fee_nano),
    providerCostNano: BigInt(row.provider_cost_nano),
    quantities: Object.fromEntries(
      UNITS_WITHOUT_COLUMN.map(({ stored }) => [stored, Number(row[stored])]),
    ),
  };
}
