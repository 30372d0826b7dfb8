import type { Database } from "../client.ts";
import { orgAccountId } from "../ledger/rows.ts";
import { inOneSnapshot } from "../one-snapshot.ts";

export interface CreditTotals {
  readonly balanceNano: bigint;
  readonly lifetimeSpendNano: bigint;
}

export async function creditTotals(
  sql: Database,
  organizationId: string,
): Promise<CreditTotals | undefined> {
  const [row] = await sql<{ credit_nano: bigint; posted_nano: bigint }[]>`
    SELECT credit_nano, posted_nano FROM accounts WHERE id = ${orgAccountId(organizationId)}`;
  return (
    row && {
      balanceNano: row.credit_nano - row.posted_nano,
      lifetimeSpendNano: row.posted_nano,
    }
  );
}

export interface TransactionListing {
  readonly organizationId: string;
  readonly type: string | undefined;
  /** Inclusive. */
  readonly fromMs: number | undefined;
  /** Exclusive. */
  readonly beforeMs: number | undefined;
  readonly limit: number;
  readonly offset: number;
}

export interface ListedTransaction {
  readonly id: string;
  readonly type: string;
  readonly amountNano: bigint;
  readonly balanceAfterNano: bigint;
  readonly description: string;
  readonly model: string | null;
  readonly requestId: string | null;
  readonly keyId: string | null;
  readonly provider: string | null;
  readonly promptTokens: number | null;
  readonly completionTokens: number | null;
  readonly estimated: boolean | null;
  readonly createdAtMs: number;
}

/** Transactions of an organization, newest first, and how many match. */
export function listTransactions(
  sql: Database,
  listing: TransactionListing,
): Promise<{ transactions: ListedTransaction[]; total: number }> {
  return inOneSnapshot(sql, async (snapshot) => {
    const matching = snapshot`organization_id = ${listing.organizationId}
      ${listing.type === undefined ? snapshot`` : snapshot`AND type = ${listing.type}`}
      ${listing.fromMs === undefined ? snapshot`` : snapshot`AND created_at >= ${new Date(listing.fromMs)}`}
      ${listing.beforeMs === undefined ? snapshot`` : snapshot`AND created_at < ${new Date(listing.beforeMs)}`}`;
    const [count] = await snapshot<{ total: bigint }[]>`
      SELECT count(*) AS total FROM transactions WHERE ${matching}`;
    const rows = await snapshot<TransactionRow[]>`
      SELECT id, type, amount_nano, balance_after_nano, description, model, request_id, key_id,
        provider, prompt_tokens, completion_tokens, estimated, created_at
      FROM transactions WHERE ${matching}
      ORDER BY sequence DESC LIMIT ${listing.limit} OFFSET ${listing.offset}`;
    return { transactions: rows.map(listedTransaction), total: Number(count!.total) };
  });
}

interface TransactionRow {
  readonly id: string;
  readonly type: string;
  readonly amount_nano: bigint;
  readonly balance_after_nano: bigint;
  readonly description: string;
  readonly model: string | null;
  readonly request_id: string | null;
  readonly key_id: string | null;
  readonly provider: string | null;
  readonly prompt_tokens: bigint | null;
  readonly completion_tokens: bigint | null;
  readonly estimated: boolean | null;
  readonly created_at: Date;
}

function listedTransaction(row: TransactionRow): ListedTransaction {
  return {
    id: row.id,
    type: row.type,
    amountNano: row.amount_nano,
    balanceAfterNano: row.balance_after_nano,
    description: row.description,
    model: row.model,
    requestId: row.request_id,
    keyId: row.key_id,
    provider: row.provider,
    promptTokens: row.prompt_tokens === null ? null : Number(row.prompt_tokens),
    completionTokens: row.completion_tokens === null ? null : Number(row.completion_tokens),
    estimated: row.estimated,
    createdAtMs: row.created_at.getTime(),
  };
}
