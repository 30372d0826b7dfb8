import { timeOfId } from "../../src/lib/ids.ts";
import { MAX_TIME_MS } from "../../src/lib/utc-time.ts";
import type { DatabaseTransaction, SqlFragment } from "../client.ts";
import { type SequenceSpan, sequenceSpan } from "./transaction-span.ts";

/** Newest transactions of each type that a search reads, except charges, which only their ids find. */
const MAX_SEARCHED = 5_000;
/** A transaction is posted at most this long after, or before, the time in its id. */
const ID_SLACK_MS = 3_600_000;
const HAS_REQUEST_ID = /^(?:req|txn)_[0-9a-f]{32}$/;
const PAYMENT_ID = /^pay_[0-9a-f]{32}$/;

/**
 * Returns the numbers of the transactions that a search finds: by the id of the transaction, its request or its
 * payment, or by a part of the description. Each way reads a limited number of rows.
 */
export async function searchTransactions(
  snapshot: DatabaseTransaction,
  organizationId: string,
  search: string,
  span: Partial<SequenceSpan>,
): Promise<bigint[]> {
  const text = search.trim();
  if (HAS_REQUEST_ID.test(text)) return findById(snapshot, organizationId, text);
  if (!PAYMENT_ID.test(text)) {
    const hasText = snapshot`strpos(lower(description), lower(${text})) > 0`;
    return findAmongNewest(snapshot, organizationId, hasText, span);
  }
  const [payment] = await snapshot<{ transaction_id: string | null }[]>`
    SELECT transaction_id FROM payment_intents WHERE id = ${text} AND organization_id = ${organizationId}`;
  const transactionId = payment?.transaction_id ?? null;
  return transactionId === null ? [] : findById(snapshot, organizationId, transactionId);
}

async function findById(
  snapshot: DatabaseTransaction,
  organizationId: string,
  id: string,
): Promise<bigint[]> {
  // No index has the ids of transactions, but those of charges contain the id of the request.
  const requestId = `req_${id.slice(id.indexOf("_") + 1)}`;
  const postedMs = Math.min(Math.max(timeOfId(id), ID_SLACK_MS), MAX_TIME_MS - ID_SLACK_MS);
  const near = await sequenceSpan(snapshot, organizationId, {
    fromMs: postedMs - ID_SLACK_MS,
    beforeMs: postedMs + ID_SLACK_MS,
  });
  const rows = await snapshot<{ sequence: bigint }[]>`
    SELECT sequence FROM transactions
    WHERE request_id = ${requestId} AND organization_id = ${organizationId} AND ${id} IN (id, request_id)
    UNION SELECT sequence FROM transactions
    WHERE refunded_request_id = ${requestId} AND organization_id = ${organizationId}
      AND ${id} IN (id, refunded_request_id)
    UNION SELECT sequence FROM transactions
    WHERE organization_id = ${organizationId} AND type <> 'usage'
      AND type IN ('topup', 'refund', 'adjustment') AND id = ${id}
      AND sequence >= ${near.from!.toString()}::bigint AND sequence < ${near.before!.toString()}::bigint`;
  if (rows.length > 0) return rows.map(({ sequence }) => sequence);
  // The clock may have been set by more than the slack since then.
  return findAmongNewest(snapshot, organizationId, snapshot`id = ${id}`, {});
}

/** Returns those of the newest transactions, except charges, that meet a condition. */
async function findAmongNewest(
  snapshot: DatabaseTransaction,
  organizationId: string,
  condition: SqlFragment,
  { from, before }: Partial<SequenceSpan>,
): Promise<bigint[]> {
  const none = snapshot``;
  const newest = (type: string) => snapshot`(
    SELECT sequence, id, description FROM transactions
    WHERE organization_id = ${organizationId} AND type <> 'usage' AND type = ${type}
      ${from === undefined ? none : snapshot`AND sequence >= ${from.toString()}::bigint`}
      ${before === undefined ? none : snapshot`AND sequence < ${before.toString()}::bigint`}
    ORDER BY sequence DESC LIMIT ${MAX_SEARCHED})`;
  const rows = await snapshot<{ sequence: bigint }[]>`
    SELECT sequence FROM (
      ${newest("topup")} UNION ALL ${newest("refund")} UNION ALL ${newest("adjustment")}
    ) entries WHERE ${condition}`;
  return rows.map(({ sequence }) => sequence);
}
