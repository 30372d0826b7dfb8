import type { Database } from "../client.ts";

/**
 * Adds the organization's next transactions, at most `most`, and as many failed requests, to its usage. Returns true if
 * there may be more. Any number of callers may do so at the same time: each transaction is added once.
 */
export async function rollUpUsage(
  sql: Database,
  organizationId: string,
  most: number,
): Promise<boolean> {
  const [row] = await sql<{ has_more: boolean }[]>`
    SELECT usage_roll_up(${organizationId}, ${most}::integer) AS has_more`;
  return row!.has_more;
}

/** A day with very many requests may take longer than other statements. */
const TOTALS_TIMEOUT_MS = 60_000;

/**
 * Computes the totals of the latest day for which the organization has usage and no totals. Returns false if there is
 * none.
 */
export async function addUsageTotals(sql: Database, organizationId: string): Promise<boolean> {
  return sql.begin(async (transaction) => {
    await transaction`SELECT set_config('statement_timeout', ${String(TOTALS_TIMEOUT_MS)}, true)`;
    const [row] = await transaction<{ was_lacking: boolean }[]>`
      SELECT usage_add_totals(${organizationId}) AS was_lacking`;
    return row!.was_lacking;
  });
}

/**
 * Adds the latest day of the organization's usage that the sums over all organizations do not contain yet. Returns false
 * if there is none.
 */
export async function addUsageToGateway(sql: Database, organizationId: string): Promise<boolean> {
  return sql.begin(async (transaction) => {
    await transaction`SELECT set_config('statement_timeout', ${String(TOTALS_TIMEOUT_MS)}, true)`;
    const [row] = await transaction<{ was_outside: boolean }[]>`
      SELECT usage_add_to_gateway(${organizationId}) AS was_outside`;
    return row!.was_outside;
  });
}

/** Returns organizations with days that the sums over all organizations do not contain. */
export async function organizationsOutsideGateway(
  sql: Database,
  atMost: number,
): Promise<string[]> {
  const rows = await sql<{ organization_id: string }[]>`
    SELECT organization_id FROM usage_cursors WHERE gateway_since > '-infinity' LIMIT ${atMost}`;
  return rows.map((row) => row.organization_id);
}

export async function organizationsWithoutTotals(sql: Database, atMost: number): Promise<string[]> {
  const rows = await sql<{ organization_id: string }[]>`
    SELECT organization_id FROM usage_cursors WHERE totals_since > '-infinity' LIMIT ${atMost}`;
  return rows.map((row) => row.organization_id);
}

/**
 * Returns organizations with transactions or failed requests that their usage does not include yet.
 */
export async function organizationsWithNewUsage(sql: Database, atMost: number): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    SELECT o.id FROM organizations o LEFT JOIN usage_cursors c ON c.organization_id = o.id
    WHERE ${hasNew(sql, sql`o.id`, sql`c.sequence`)} LIMIT ${atMost}`;
  return rows.map(({ id }) => id);
}

export async function hasNewUsage(sql: Database, organizationId: string): Promise<boolean> {
  const [row] = await sql<{ has_new: boolean }[]>`
    SELECT ${hasNew(sql, sql`o.id`, sql`c.sequence`)} AS has_new
    FROM (SELECT ${organizationId}::text AS id) o LEFT JOIN usage_cursors c ON c.organization_id = o.id`;
  return row!.has_new;
}

/**
 * The last number is one read of the primary key. Searching any number after the cursor may read the table.
 */
function hasNew(sql: Database, id: ReturnType<Database>, sequence: ReturnType<Database>) {
  return sql`(coalesce(${sequence}, 0)
      < (SELECT coalesce(max(t.sequence), 0) FROM transactions t WHERE t.organization_id = ${id})
    OR EXISTS (
      SELECT FROM failed_requests f WHERE f.organization_id = ${id} AND f.usage_state = 0))`;
}
