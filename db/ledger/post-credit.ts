import type { Database, DatabaseTransaction } from "../client.ts";

export interface CreditEntry {
  readonly transactionId: string;
  readonly organizationId: string;
  readonly type: "topup" | "adjustment";
  /** Negative takes from the balance. */
  readonly amountNano: bigint;
  readonly description: string;
}

export interface PostedCredit {
  readonly transactionId: string;
  readonly amountNano: bigint;
  readonly balanceAfterNano: bigint;
  readonly createdAtMs: number;
}

/**
 * Posts a top-up or an adjustment and tells every process. Returns undefined, and posts nothing,
 * where the organization is unknown or a negative amount takes more than its balance, its credit limit and
 * the holds in the database leave. The caller answers for other holds.
 */
export async function postCredit(
  sql: Database | DatabaseTransaction,
  entry: CreditEntry,
): Promise<PostedCredit | undefined> {
  const [row] = await sql<{ id: string | null; balance_after_nano: bigint; created_at: Date }[]>`
    SELECT id, balance_after_nano, created_at FROM ledger_post_credit(${entry.transactionId},
      ${entry.organizationId}, ${entry.type}, ${entry.amountNano.toString()}::bigint,
      ${entry.description}, 0)`;
  if (!row || row.id === null) return undefined;
  return {
    transactionId: row.id,
    amountNano: entry.amountNano,
    balanceAfterNano: row.balance_after_nano,
    createdAtMs: row.created_at.getTime(),
  };
}
