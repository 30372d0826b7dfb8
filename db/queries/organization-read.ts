import type { Database } from "../client.ts";
import type { Query } from "../query.ts";

interface LoadedOrganization {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  /** Null: the plan's. */
  readonly feeBasisPoints: number | null;
  readonly creditNano: bigint;
  /** How far the balance may go below zero; null is without limit. */
  readonly creditLimitNano: bigint | null;
  readonly postedNano: bigint;
  readonly sequence: bigint;
  readonly heldNano: bigint;
}

/** An organization with its balance account. */
export function loadOrganization(id: string): Query<LoadedOrganization | undefined> {
  return {
    name: "organization-load",
    tables: ["organizations", "accounts"],
    async run(sql) {
      const [row] = await sql<
        {
          id: string;
          name: string;
          plan: string;
          credit_nano: bigint;
          credit_limit_nano: bigint | null;
          posted_nano: bigint;
          sequence: bigint;
          held_nano: bigint;
          fee_basis_points: number | null;
        }[]
      >`SELECT o.id, o.name, o.plan, a.credit_nano, a.credit_limit_nano, a.posted_nano, a.sequence,
          a.held_nano, o.fee_basis_points
        FROM organizations o JOIN accounts a ON a.id = 'org:' || o.id WHERE o.id = ${id}`;
      return (
        row && {
          id: row.id,
          name: row.name,
          plan: row.plan,
          creditNano: row.credit_nano,
          creditLimitNano: row.credit_limit_nano,
          postedNano: row.posted_nano,
          sequence: row.sequence,
          heldNano: row.held_nano,
          feeBasisPoints: row.fee_basis_points,
        }
      );
    },
  };
}

interface ListedOrganization {
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
