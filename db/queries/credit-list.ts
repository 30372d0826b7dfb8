import type { Quantities } from "../../src/lib/usage.ts";
import { type Database, type DatabaseTransaction, inOneSnapshot } from "../client.ts";
import { orgAccountId } from "../ledger/rows.ts";

interface CreditTotals {
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
  /** Leaves out what belongs to another key than this one; undefined: nothing. */
  readonly ofKeyId?: string | undefined;
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
  readonly cachedPromptTokens: number | null;
  readonly reasoningTokens: number | null;
  /** Uses that most calls do not have. */
  readonly quantities: Quantities | null;
  readonly latencyMs: number | null;
  readonly status: number | null;
  readonly user: string | null;
  readonly sessionId: string | null;
  /** Undefined where the page has no room for it. */
  readonly recorded: RecordedObjects | undefined;
  readonly createdAtMs: number;
}

interface RecordedObjects {
  readonly trace: unknown;
  readonly metadata: unknown;
}

/**
 * What the traces and metadata of one page may take together, in bytes of JSON. Each request may record
 * 32 KB, and a page of such requests would hold the event loop.
 */
const MAX_RECORDED_BYTES = 1_048_576;

/** Transactions of an organization, newest first, and how many match. */
export function listTransactions(
  sql: Database,
  listing: TransactionListing,
): Promise<TransactionPage> {
  const { type, ofKeyId, fromMs, beforeMs } = listing;
  const filters = [type, ofKeyId, fromMs, beforeMs];
  return filters.some((filter) => filter !== undefined)
    ? listMatching(sql, listing)
    : listAll(sql, listing);
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
    SELECT ${columns(sql)} FROM (
      SELECT * FROM transactions
      WHERE organization_id = ${organizationId} AND sequence <= ${first.toString()}::bigint
      ORDER BY sequence DESC LIMIT ${limit}
    ) page ORDER BY sequence DESC`;
  return { transactions: rows.map(listedTransaction), total: Number(total) };
}

function listMatching(sql: Database, listing: TransactionListing): Promise<TransactionPage> {
  return inOneSnapshot(sql, async (snapshot) => {
    const matching = snapshot`organization_id = ${listing.organizationId}
      ${ofType(snapshot, listing.type)}
      ${listing.ofKeyId === undefined ? snapshot`` : snapshot`AND (key_id IS NULL OR key_id = ${listing.ofKeyId})`}
      ${listing.fromMs === undefined ? snapshot`` : snapshot`AND created_at >= ${new Date(listing.fromMs)}`}
      ${listing.beforeMs === undefined ? snapshot`` : snapshot`AND created_at < ${new Date(listing.beforeMs)}`}`;
    const { ofKeyId, fromMs, beforeMs } = listing;
    const isOfAll = ofKeyId === undefined && fromMs === undefined && beforeMs === undefined;
    const total =
      listing.type === USAGE && isOfAll
        ? await countUsage(snapshot, listing.organizationId)
        : await count(snapshot, matching);
    const rows = await snapshot<TransactionRow[]>`
      SELECT ${columns(snapshot)} FROM (
        SELECT * FROM transactions WHERE ${matching}
        ORDER BY sequence DESC LIMIT ${listing.limit} OFFSET ${listing.offset}
      ) page ORDER BY sequence DESC`;
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
    provider, prompt_tokens, completion_tokens, estimated, cached_prompt_tokens, reasoning_tokens,
    quantities, latency_ms, status, details ->> 'user' AS user_name, details ->> 'session_id' AS session_id,
    CASE WHEN sum(octet_length(details::text)) OVER (ORDER BY sequence DESC) > ${MAX_RECORDED_BYTES}::bigint
      AND details ?| ARRAY['trace', 'metadata'] THEN NULL
      ELSE jsonb_build_object('trace', details -> 'trace', 'metadata', details -> 'metadata')
    END AS recorded, created_at`;
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
  readonly cached_prompt_tokens: bigint | null;
  readonly reasoning_tokens: bigint | null;
  readonly quantities: Quantities | null;
  readonly latency_ms: number | null;
  readonly status: number | null;
  readonly user_name: string | null;
  readonly session_id: string | null;
  readonly recorded: RecordedObjects | null;
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
    promptTokens: numberOf(row.prompt_tokens),
    completionTokens: numberOf(row.completion_tokens),
    estimated: row.estimated,
    cachedPromptTokens: numberOf(row.cached_prompt_tokens),
    reasoningTokens: numberOf(row.reasoning_tokens),
    quantities: row.quantities,
    latencyMs: row.latency_ms,
    status: row.status,
    user: row.user_name,
    sessionId: row.session_id,
    recorded: row.recorded ?? undefined,
    createdAtMs: row.created_at.getTime(),
  };
}

function numberOf(count: bigint | null): number | null {
  return count === null ? null : Number(count);
}

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
