import type { TransactionKind } from "../../src/lib/transaction-kinds.ts";
import type { Quantities } from "../../src/lib/usage.ts";
import { type Database, type DatabaseTransaction, inOneSnapshot } from "../client.ts";
import { orgAccountId } from "../ledger/rows.ts";
import { searchTransactions } from "./transaction-search.ts";
import { type SequenceSpan, sequenceSpan, type TimeSpan } from "./transaction-span.ts";

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

export interface TransactionFilter extends TimeSpan {
  readonly organizationId: string;
  readonly type: string | undefined;
  readonly keyId?: string | undefined;
  readonly model?: string | undefined;
  /** An id of a transaction or request, or a part of the description of a transaction that is no charge. */
  readonly search?: string | undefined;
}

export interface TransactionListing extends TransactionFilter {
  readonly limit: number;
  readonly offset: number;
}

export interface ListedTransaction {
  readonly id: string;
  readonly sequence: bigint;
  readonly type: string;
  readonly kind: TransactionKind;
  readonly amountNano: bigint;
  /** Part of a charge that is the plan's fee. Null: not recorded. */
  readonly feeNano: bigint | null;
  readonly balanceAfterNano: bigint;
  readonly description: string;
  readonly model: string | null;
  readonly requestId: string | null;
  /** The request whose charge a refund gives back. */
  readonly refundedRequestId: string | null;
  readonly keyId: string | null;
  readonly provider: string | null;
  readonly promptTokens: number | null;
  readonly completionTokens: number | null;
  readonly estimated: boolean | null;
  readonly cachedPromptTokens: number | null;
  readonly reasoningTokens: number | null;
  /** Kinds of use that most calls do not have. */
  readonly quantities: Quantities | null;
  readonly latencyMs: number | null;
  readonly status: number | null;
  readonly user: string | null;
  readonly sessionId: string | null;
  /** Undefined if the page has no space for it. */
  readonly recorded: RecordedObjects | undefined;
  readonly createdAtMs: number;
}

interface RecordedObjects {
  readonly trace: unknown;
  readonly metadata: unknown;
}

/**
 * Largest size of the traces and metadata of one page, in bytes of JSON. Each request may record 32 KB, and a page of
 * such requests would block the event loop.
 */
const MAX_RECORDED_BYTES = 1_048_576;

/** Lists transactions of an organization, newest first, with the number of matches. */
export function listTransactions(
  sql: Database,
  listing: TransactionListing,
): Promise<TransactionPage> {
  const { type, keyId, model, search, fromMs, beforeMs } = listing;
  const others = [keyId, model, search, fromMs, beforeMs];
  if (others.every((filter) => filter === undefined)) {
    if (type === undefined) return listAll(sql, listing);
    if (type === USAGE) return inOneSnapshot(sql, (snapshot) => listUsage(snapshot, listing));
  }
  return inOneSnapshot(sql, async (snapshot) => {
    // A plan that is kept for any key and model could not know which of them is rare.
    await snapshot`SET LOCAL plan_cache_mode = force_custom_plan`;
    return listMatching(snapshot, listing);
  });
}

interface TransactionPage {
  readonly transactions: ListedTransaction[];
  /**
   * Exact up to MAX_COUNTED, or MAX_COUNTED_OF_BOTH, and if a count is stored. Above that a lower bound.
   */
  readonly total: number;
  readonly hasMore: boolean;
}

/**
 * Largest number of matches that is counted, so that a page of ten million takes no longer than one of these.
 */
const MAX_COUNTED = 10_000;
/**
 * Largest number of matches for one key and one model: no index has both, so at least twice as many rows are read.
 */
const MAX_COUNTED_OF_BOTH = 5_000;

/**
 * Lists all transactions. They are numbered from 1 without a gap, so neither the count nor a late page takes longer
 * with millions of them.
 */
async function listAll(sql: Database, listing: TransactionListing): Promise<TransactionPage> {
  const { organizationId, limit, offset } = listing;
  const [last] = await sql<{ sequence: bigint | null }[]>`
    SELECT max(sequence) AS sequence FROM transactions WHERE organization_id = ${organizationId}`;
  const total = last?.sequence ?? 0n;
  const first = total - BigInt(offset);
  const rows = await sql<TransactionRow[]>`
    SELECT ${columns(sql)}, ${recorded(sql)} FROM (
      SELECT sequence FROM transactions
      WHERE organization_id = ${organizationId} AND sequence <= ${first.toString()}::bigint
      ORDER BY sequence DESC LIMIT ${limit}
    ) page ${ofLedger(sql, organizationId)}`;
  return {
    transactions: rows.map(listedTransaction),
    total: Number(total),
    hasMore: offset + rows.length < Number(total),
  };
}

/** Lists usage. Most transactions are usage, so it counts the others and subtracts them. */
async function listUsage(
  snapshot: DatabaseTransaction,
  listing: TransactionListing,
): Promise<TransactionPage> {
  const { organizationId } = listing;
  const [row] = await snapshot<{ total: bigint }[]>`
    SELECT coalesce((SELECT max(sequence) FROM transactions WHERE organization_id = ${organizationId}), 0)
      - (SELECT count(*) FROM transactions
         WHERE organization_id = ${organizationId} AND type <> 'usage') AS total`;
  const page = await readPage(snapshot, listing, matchingSequences(snapshot, listing, {}));
  return { ...page, total: Number(row!.total) };
}

async function listMatching(
  snapshot: DatabaseTransaction,
  listing: TransactionListing,
): Promise<TransactionPage> {
  const { keyId, model, offset } = listing;
  const sequences = matchingSequences(snapshot, listing, await readBounds(snapshot, listing));
  const page = await readPage(snapshot, listing, sequences);
  const seen = offset + page.transactions.length;
  const isWhole = !page.hasMore && (page.transactions.length > 0 || offset === 0);
  if (isWhole) return { ...page, total: seen };
  const isOfBoth = keyId !== undefined && model !== undefined;
  const most = isOfBoth ? MAX_COUNTED_OF_BOTH : MAX_COUNTED;
  const [row] = await snapshot<{ total: bigint }[]>`
    SELECT count(*) AS total FROM (${sequences(most + 1)}) counted`;
  const counted = Number(row!.total);
  return { ...page, total: page.hasMore ? Math.max(counted, seen + 1) : counted };
}

const USAGE = "usage";

/** Returns the numbers of the first matching transactions, newest first. */
type Sequences = (atMost: number) => ReturnType<typeof ofType>;

interface SequenceBounds extends Partial<SequenceSpan> {
  /** Numbers among which the matches are. Undefined: any. */
  readonly found?: readonly bigint[] | undefined;
}

async function readBounds(
  snapshot: DatabaseTransaction,
  filter: TransactionFilter,
): Promise<SequenceBounds> {
  const span = await sequenceSpan(snapshot, filter.organizationId, filter);
  if (filter.search === undefined) return span;
  const found = await searchTransactions(snapshot, filter.organizationId, filter.search, span);
  return { ...span, found };
}

/**
 * Times are compared in a form that no index serves, because an index in order finds the span of numbers.
 */
function matchingSequences(
  snapshot: DatabaseTransaction,
  { organizationId, type, keyId, model, fromMs, beforeMs }: TransactionFilter,
  { from, before, found }: SequenceBounds,
): Sequences {
  const none = snapshot``;
  return (atMost) => snapshot`
    SELECT sequence FROM transactions WHERE organization_id = ${organizationId}
      ${keyId === undefined ? none : snapshot`AND key_id = ${keyId}`}
      ${ofType(snapshot, type)}
      ${model === undefined ? none : snapshot`AND model = ${model}`}
      ${found === undefined ? none : snapshot`AND sequence = ANY (${found.map(String)}::bigint[])`}
      ${from === undefined ? none : snapshot`AND sequence >= ${from.toString()}::bigint`}
      ${before === undefined ? none : snapshot`AND sequence < ${before.toString()}::bigint`}
      ${fromMs === undefined ? none : snapshot`AND created_at - ${new Date(fromMs)}::timestamptz >= interval '0'`}
      ${beforeMs === undefined ? none : snapshot`AND created_at - ${new Date(beforeMs)}::timestamptz < interval '0'`}
    ORDER BY sequence DESC LIMIT ${atMost.toString()}::bigint`;
}

/** Returns the condition on the type, written so that the index of other types (transactions_entries) applies. */
function ofType(snapshot: DatabaseTransaction, type: string | undefined) {
  if (type === undefined) return snapshot``;
  return type === USAGE
    ? snapshot`AND type = 'usage'`
    : snapshot`AND type = ${type} AND type <> 'usage'`;
}

/** Reads one more row than the page holds. It shows whether there are more. */
async function readPage(
  snapshot: DatabaseTransaction,
  { organizationId, limit, offset }: TransactionListing,
  sequences: Sequences,
): Promise<Omit<TransactionPage, "total">> {
  const rows = await snapshot<TransactionRow[]>`
    SELECT ${columns(snapshot)}, ${recorded(snapshot)} FROM (
      SELECT sequence FROM (${sequences(offset + limit + 1)}) first_ones
      ORDER BY sequence DESC OFFSET ${offset}
    ) page ${ofLedger(snapshot, organizationId)}`;
  return {
    transactions: rows.slice(0, limit).map(listedTransaction),
    hasMore: rows.length > limit,
  };
}

/** Reads the transactions `t` of a page of numbers, newest first. */
function ofLedger(sql: Database | DatabaseTransaction, organizationId: string) {
  return sql`JOIN transactions t
    ON t.organization_id = ${organizationId} AND t.sequence = page.sequence
    ORDER BY page.sequence DESC`;
}

function columns(sql: Database | DatabaseTransaction) {
  return sql`t.id, t.sequence, t.type, t.amount_nano, t.fee_nano, t.balance_after_nano, t.description, t.model,
    t.request_id, t.key_id, t.provider, t.prompt_tokens, t.completion_tokens, t.estimated,
    t.cached_prompt_tokens, t.reasoning_tokens, t.quantities, t.latency_ms, t.status,
    t.details ->> 'user' AS user_name, t.details ->> 'session_id' AS session_id, t.created_at,
    CASE t.type WHEN 'usage' THEN 'charge' ELSE transaction_kind(t) END AS kind,
    CASE WHEN t.type = 'refund' THEN coalesce(t.refunded_request_id,
      'req_' || substring(t.description FROM '^Refund of txn_([0-9a-f]+)$')) END AS refunded_request_id`;
}

/** Traces and metadata, as far as the page has space for them. */
function recorded(sql: Database | DatabaseTransaction) {
  return sql`
    CASE WHEN sum(octet_length(t.details::text)) OVER (ORDER BY t.sequence DESC) > ${MAX_RECORDED_BYTES}::bigint
      AND t.details ?| ARRAY['trace', 'metadata'] THEN NULL
      ELSE jsonb_build_object('trace', t.details -> 'trace', 'metadata', t.details -> 'metadata')
    END AS recorded`;
}

interface TransactionRow {
  readonly id: string;
  readonly sequence: bigint;
  readonly type: string;
  readonly kind: TransactionKind;
  readonly amount_nano: bigint;
  readonly fee_nano: bigint | null;
  readonly balance_after_nano: bigint;
  readonly description: string;
  readonly model: string | null;
  readonly request_id: string | null;
  readonly refunded_request_id: string | null;
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
  readonly recorded?: RecordedObjects | null;
  readonly created_at: Date;
}

function listedTransaction(row: TransactionRow): ListedTransaction {
  return {
    id: row.id,
    sequence: row.sequence,
    type: row.type,
    kind: row.kind,
    amountNano: row.amount_nano,
    feeNano: row.fee_nano,
    balanceAfterNano: row.balance_after_nano,
    description: row.description,
    model: row.model,
    requestId: row.request_id,
    refundedRequestId: row.refunded_request_id,
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

/** Transactions of an export, in pages. */
export interface TransactionExport {
  /** True if more than `most` transactions can match. Exports with a filter besides the time are not checked. */
  readonly isTooLong: boolean;
  /** Returns the newest matching transactions before a number, without traces and metadata. */
  read(before: bigint | undefined, limit: number): Promise<ListedTransaction[]>;
}

/** Prepares an export of transactions, newest first. Each page is read by itself: no transaction stays open. */
export async function exportTransactions(
  sql: Database,
  filter: TransactionFilter,
  most: number,
): Promise<TransactionExport> {
  const { organizationId, type, keyId, model, search } = filter;
  const { bounds, last } = await inOneSnapshot(sql, async (snapshot) => {
    const [row] = await snapshot<{ sequence: bigint | null }[]>`
      SELECT max(sequence) AS sequence FROM transactions WHERE organization_id = ${organizationId}`;
    return { bounds: await readBounds(snapshot, filter), last: row?.sequence ?? 0n };
  });
  const end = bounds.before ?? last + 1n;
  const isFiltered = [type, keyId, model, search].some((value) => value !== undefined);
  return {
    isTooLong: !isFiltered && end - (bounds.from ?? 1n) > BigInt(most),
    read: (before = end, limit) =>
      inOneSnapshot(sql, async (snapshot) => {
        await snapshot`SET LOCAL plan_cache_mode = force_custom_plan`;
        const sequences = matchingSequences(snapshot, filter, { ...bounds, before });
        const rows = await snapshot<TransactionRow[]>`
          SELECT ${columns(snapshot)} FROM (${sequences(limit)}) page
          ${ofLedger(snapshot, organizationId)}`;
        return rows.map(listedTransaction);
      }),
  };
}

function numberOf(count: bigint | null): number | null {
  return count === null ? null : Number(count);
}

/** A transaction of another type than usage. */
export interface PostedEntry {
  readonly id: string;
  readonly type: string;
  readonly amountNano: bigint;
  readonly balanceAfterNano: bigint;
  readonly description: string;
  readonly createdAtMs: number;
}

/** Finds a recent transaction of an organization by its id, among the newest. */
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
