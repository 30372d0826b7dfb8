import type { Database, DatabaseTransaction } from "../client.ts";
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
): Promise<TransactionPage> {
  const { type, fromMs, beforeMs } = listing;
  const isFiltered = type !== undefined || fromMs !== undefined || beforeMs !== undefined;
  return isFiltered ? listMatching(sql, listing) : listAll(sql, listing);
}

interface TransactionPage {
  readonly transactions: ListedTransaction[];
  readonly total: number;
}

/**
 * They are numbered from 1 without a gap, so that neither how many there are nor a page far behind takes
 * longer where they are millions.
 */
async function listAll(sql: Database, listing: TransactionListing): Promise<TransactionPage> {
  const { organizationId, limit, offset } = listing;
  const [last] = await sql<{ sequence: bigint | null }[]>`
    SELECT max(sequence) AS sequence FROM transactions WHERE organization_id = ${organizationId}`;
  const total = last?.sequence ?? 0n;
  const first = total - BigInt(offset);
  const rows = await sql<TransactionRow[]>`
    SELECT ${columns(sql)} FROM transactions
    WHERE organization_id = ${organizationId} AND sequence <= ${first.toString()}::bigint
    ORDER BY sequence DESC LIMIT ${limit}`;
  return { transactions: rows.map(listedTransaction), total: Number(total) };
}

function listMatching(sql: Database, listing: TransactionListing): Promise<TransactionPage> {
  return inOneSnapshot(sql, async (snapshot) => {
    const matching = snapshot`organization_id = ${listing.organizationId}
      ${ofType(snapshot, listing.type)}
      ${listing.fromMs === undefined ? snapshot`` : snapshot`AND created_at >= ${new Date(listing.fromMs)}`}
      ${listing.beforeMs === undefined ? snapshot`` : snapshot`AND created_at < ${new Date(listing.beforeMs)}`}`;
    const isOfAllTime = listing.fromMs === undefined && listing.beforeMs === undefined;
    const total =
      listing.type === USAGE && isOfAllTime
        ? await countUsage(snapshot, listing.organizationId)
        : await count(snapshot, matching);
    const rows = await snapshot<TransactionRow[]>`
      SELECT ${columns(snapshot)} FROM transactions WHERE ${matching}
      ORDER BY sequence DESC LIMIT ${listing.limit} OFFSET ${listing.offset}`;
    return { transactions: rows.map(listedTransaction), total };
  });
}

const USAGE = "usage";

/** In words that the index of what is no usage (transactions_entries) is found by. */
function ofType(snapshot: DatabaseTransaction, type: string | undefined) {
  if (type === undefined) return snapshot``;
  return type === USAGE
    ? snapshot`AND type = 'usage'`
    : snapshot`AND type = ${type} AND type <> 'usage'`;
}

async function count(
  snapshot: DatabaseTransaction,
  matching: ReturnType<typeof ofType>,
): Promise<number> {
  const [row] = await snapshot<{ total: bigint }[]>`
    SELECT count(*) AS total FROM transactions WHERE ${matching}`;
  return Number(row!.total);
}

/** Mostly all there are: what is none is counted instead. */
async function countUsage(snapshot: DatabaseTransaction, organizationId: string): Promise<number> {
  const [row] = await snapshot<{ total: bigint }[]>`
    SELECT coalesce((SELECT max(sequence) FROM transactions WHERE organization_id = ${organizationId}), 0)
      - (SELECT count(*) FROM transactions
         WHERE organization_id = ${organizationId} AND type <> 'usage') AS total`;
  return Number(row!.total);
}

function columns(sql: Database | DatabaseTransaction) {
  return sql`id, type, amount_nano, balance_after_nano, description, model, request_id, key_id,
    provider, prompt_tokens, completion_tokens, estimated, created_at`;
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
