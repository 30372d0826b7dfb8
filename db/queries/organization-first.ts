import type { Database } from "../client.ts";

export interface FirstOrganization {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  /** Null: the plan's fee. */
  readonly feeBasisPoints: bigint | null;
  readonly balanceNano: bigint;
  /** Null is without limit. */
  readonly creditLimitNano: bigint | null;
}

/** The organization that the first start created; undefined where there is none. */
export async function findFirstOrganization(sql: Database): Promise<FirstOrganization | undefined> {
  const [row] = await sql<
    {
      id: string;
      name: string;
      plan: string;
      fee_basis_points: number | null;
      balance_nano: bigint | null;
      credit_limit_nano: bigint | null;
    }[]
  >`SELECT o.id, o.name, o.plan, o.fee_basis_points,
      a.credit_nano - a.posted_nano AS balance_nano, a.credit_limit_nano
    FROM organizations o LEFT JOIN accounts a ON a.id = 'org:' || o.id
    ORDER BY o.created_at, o.id LIMIT 1`;
  return (
    row && {
      id: row.id,
      name: row.name,
      plan: row.plan,
      feeBasisPoints: row.fee_basis_points === null ? null : BigInt(row.fee_basis_points),
      balanceNano: row.balance_nano ?? 0n,
      creditLimitNano: row.credit_limit_nano,
    }
  );
}
