import type { Database } from "../client.ts";

export interface ListedOrganization {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly balanceNano: bigint;
  readonly createdAtMs: number;
}

/** Organizations, newest first, and how many there are. */
export async function listOrganizations(
  sql: Database,
  page: { readonly limit: number; readonly offset: number },
): Promise<{ organizations: ListedOrganization[]; total: number }> {
  const [count] = await sql<{ total: bigint }[]>`SELECT count(*) AS total FROM organizations`;
  const rows = await sql<
    { id: string; name: string; plan: string; balance_nano: bigint | null; created_at: Date }[]
  >`SELECT o.id, o.name, o.plan, a.credit_nano - a.posted_nano AS balance_nano, o.created_at
    FROM organizations o LEFT JOIN accounts a ON a.id = 'org:' || o.id
    ORDER BY o.created_at DESC, o.id DESC LIMIT ${page.limit} OFFSET ${page.offset}`;
  return {
    organizations: rows.map((row) => ({
      id: row.id,
      name: row.name,
      plan: row.plan,
      balanceNano: row.balance_nano ?? 0n,
      createdAtMs: row.created_at.getTime(),
    })),
    total: Number(count!.total),
  };
}
