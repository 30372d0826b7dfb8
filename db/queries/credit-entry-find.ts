import type { Database } from "../client.ts";

/** A transaction that is no usage. */
export interface PostedEntry {
  readonly id: string;
  readonly type: string;
  readonly amountNano: bigint;
  readonly balanceAfterNano: bigint;
  readonly description: string;
  readonly createdAtMs: number;
}

/** A recent transaction of an organization by its id: the newest are looked at first. */
export async function findCreditEntry(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<PostedEntry | undefined> {
  const [row] = await sql<
    {
      type: string;
      amount_nano: bigint;
      balance_after_nano: bigint;
      description: string;
      created_at: Date;
    }[]
  >`SELECT type, amount_nano, balance_after_nano, description, created_at FROM transactions
    WHERE organization_id = ${organizationId} AND id = ${id} AND type <> 'usage' ORDER BY sequence DESC LIMIT 1`;
  return (
    row && {
      id,
      type: row.type,
      amountNano: row.amount_nano,
      balanceAfterNano: row.balance_after_nano,
      description: row.description,
      createdAtMs: row.created_at.getTime(),
    }
  );
}
