import type { Query } from "../query.ts";

export interface LoadedOrganization {
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
