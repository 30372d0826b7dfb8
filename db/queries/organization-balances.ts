import type { Database } from "../client.ts";

export interface OrganizationBalance {
  readonly organizationId: string;
  readonly balanceNano: bigint;
}

/** Balances of the oldest organizations, at most `limit`. */
export async function listOrganizationBalances(
  sql: Database,
  limit: number,
): Promise<OrganizationBalance[]> {
  const rows = await sql<{ id: string; balance_nano: bigint }[]>`
    SELECT o.id, a.credit_nano - a.posted_nano AS balance_nano
    FROM (SELECT id FROM organizations ORDER BY id LIMIT ${limit}) o
    JOIN accounts a ON a.id = 'org:' || o.id`;
  return rows.map((row) => ({ organizationId: row.id, balanceNano: row.balance_nano }));
}
