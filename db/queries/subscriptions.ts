import { type Database, type DatabaseTransaction, inOneSnapshot } from "../client.ts";
import { changeOrganization } from "./organizations.ts";
import { firstSequenceSince } from "./transaction-span.ts";

/**
 * Returns the sum of charges since a time: the decrease of the balance since then plus the amounts that were added. It
 * takes a few reads by index, however many charges there are. The time separates the transactions in the order of their
 * numbers.
 */
export function chargedSince(
  sql: Database,
  organizationId: string,
  sinceMs: number,
): Promise<bigint> {
  return inOneSnapshot(sql, async (snapshot) => {
    const first = (await firstSequenceSince(snapshot, organizationId, sinceMs)).toString();
    const [row] = await snapshot<{ before: bigint; now: bigint; other: bigint }[]>`
      SELECT
        coalesce((SELECT balance_after_nano FROM transactions
          WHERE organization_id = ${organizationId} AND sequence < ${first}::bigint
          ORDER BY sequence DESC LIMIT 1), 0) AS before,
        coalesce((SELECT balance_after_nano FROM transactions
          WHERE organization_id = ${organizationId} ORDER BY sequence DESC LIMIT 1), 0) AS now,
        coalesce((SELECT sum(amount_nano) FROM transactions
          WHERE organization_id = ${organizationId} AND type <> 'usage'
            AND sequence >= ${first}::bigint), 0)::bigint AS other`;
    return row!.before + row!.other - row!.now;
  });
}

/**
 * Puts the organization on a plan, unless an operator has put it on one that it cannot leave by itself. Returns true if
 * it is on the plan now.
 *
 * @param leavable the plans that an organization may leave by itself
 */
export async function choosePlan(
  sql: DatabaseTransaction,
  organizationId: string,
  plan: string,
  leavable: readonly string[],
): Promise<boolean> {
  const [row] = await sql<{ plan: string }[]>`
    SELECT plan FROM organizations WHERE id = ${organizationId} FOR NO KEY UPDATE`;
  if (row?.plan === plan) return true;
  if (row === undefined || !leavable.includes(row.plan)) return false;
  return changeOrganization(sql, organizationId, { plan });
}
