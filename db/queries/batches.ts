import type { BatchEnd, BatchFault, BatchRecord } from "../../src/lib/batch.ts";
import { timeOfId } from "../../src/lib/ids.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { batches } from "../schema/batches.ts";
import { recordChange } from "./changes.ts";
import { insertFileUse } from "./files.ts";

/** Kind of the leases of batches. */
export const BATCH = "batch";

type BatchRow = RowOf<typeof batches> & { readonly left_ms: number };

const storedRecord = recordReader(batches, "dueAt");
const batchRecord = (row: BatchRow): BatchRecord => ({ ...storedRecord(row), leftMs: row.left_ms });

const columns = (sql: Database) =>
  sql`*, (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::float8 AS left_ms`;

export interface NewBatch {
  readonly id: string;
  readonly organizationId: string;
  readonly keyId: string;
  readonly endpoint: string;
  readonly inputFile: string;
  readonly metadata: Readonly<Record<string, string>> | null;
}

const COMPLETION_WINDOW = "24 hours";

/**
 * Inserts a batch and keeps its input file for it.
 *
 * @param mostRunning largest number of batches of the organization that have not ended
 */
export function insertBatch(
  sql: Database,
  batch: NewBatch,
  mostRunning: number,
): Promise<"inserted" | "too_many" | "no_file"> {
  const { id, organizationId } = batch;
  return sql.begin(async (transaction) => {
    // One insertion of an organization at a time, so that the count is exact.
    await transaction`SELECT pg_advisory_xact_lock(hashtextextended(${`batches ${organizationId}`}, 0))`;
    const [count] = await transaction<{ running: bigint }[]>`SELECT count(*) AS running
      FROM batches WHERE organization_id = ${organizationId} AND ended_at IS NULL`;
    if (Number(count!.running) >= mostRunning) return "too_many";
    const use = { fileId: batch.inputFile, organizationId, holder: id };
    if (!(await insertFileUse(transaction, use))) return "no_file";
    const metadata = batch.metadata && JSON.stringify(batch.metadata);
    await transaction`
      INSERT INTO batches (id, organization_id, key_id, endpoint, input_file, status, metadata,
        created_at, expires_at, due_at)
      VALUES (${id}, ${organizationId}, ${batch.keyId}, ${batch.endpoint}, ${batch.inputFile},
        'validating', ${metadata}::text::jsonb, ${new Date(timeOfId(id))},
        clock_timestamp() + ${COMPLETION_WINDOW}::interval, clock_timestamp())`;
    await recordChange(transaction, "batch-work", id);
    return "inserted";
  });
}

/** Returns undefined if the organization has no batch of that id. */
export async function findBatch(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<BatchRecord | undefined> {
  const [row] = await sql<BatchRow[]>`SELECT ${columns(sql)} FROM batches
    WHERE id = ${id} AND organization_id = ${organizationId}`;
  return row && batchRecord(row);
}

/** Reads a batch for its owner. */
export async function readBatch(sql: Database, id: string): Promise<BatchRecord | undefined> {
  const [row] = await sql<BatchRow[]>`SELECT ${columns(sql)} FROM batches WHERE id = ${id}`;
  return row && batchRecord(row);
}

/** Lists batches of an organization, newest first. */
export async function listBatches(
  sql: Database,
  organizationId: string,
  { after, limit }: { readonly after: string | undefined; readonly limit: number },
): Promise<{ batches: BatchRecord[]; hasMore: boolean }> {
  const rows = await sql<BatchRow[]>`SELECT ${columns(sql)} FROM batches
    WHERE organization_id = ${organizationId}
      ${after === undefined ? sql`` : sql`AND id COLLATE "C" < ${after}`}
    ORDER BY id COLLATE "C" DESC LIMIT ${limit + 1}`;
  return { batches: rows.slice(0, limit).map(batchRecord), hasMore: rows.length > limit };
}

/**
 * Requests the cancellation of a batch from its owner. Returns false, and does nothing, if the batch has ended, or if
 * its files are being written.
 */
export async function cancelBatch(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const update = await transaction`UPDATE batches
      SET status = 'cancelling', cancelling_at = clock_timestamp(), due_at = clock_timestamp(), attempts = 0
      WHERE id = ${id} AND organization_id = ${organizationId}
        AND status IN ('validating', 'in_progress')`;
    if (update.count > 0) await recordChange(transaction, "batch-work", id);
    return update.count > 0;
  });
}

/**
 * Finds batches that have work and no live owner: at most a number per organization, and none of some.
 */
export async function findDueBatches(
  sql: Database,
  limit: number,
  { mostOfOne, without }: { readonly mostOfOne: number; readonly without: readonly string[] },
): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    SELECT d.id FROM (
      SELECT b.id, b.due_at, row_number() OVER (PARTITION BY b.organization_id ORDER BY b.due_at) AS turn
      FROM batches b WHERE b.due_at <= clock_timestamp()
        AND b.organization_id <> ALL (${sql.array([...without])}::text[])
        AND NOT EXISTS (SELECT 1 FROM owned_actors a WHERE a.kind = ${BATCH} AND a.id = b.id)
    ) d WHERE d.turn <= ${mostOfOne} ORDER BY d.turn, d.due_at LIMIT ${limit}`;
  return rows.map(({ id }) => id);
}

/**
 * Records that the input is valid: its lines are called from now on, unless it is to be cancelled.
 */
export async function beginLines(
  sql: DatabaseTransaction,
  id: string,
  { total, models }: { readonly total: number; readonly models: readonly string[] },
): Promise<void> {
  await sql`UPDATE batches SET total = ${total}, models = ${sql.array([...models])}, attempts = 0,
      status = CASE status WHEN 'validating' THEN 'in_progress' ELSE status END,
      in_progress_at = clock_timestamp()
    WHERE id = ${id} AND in_progress_at IS NULL`;
}

/**
 * Records that the input is invalid: no line was called. Returns the updated batch, or undefined if it had ended
 * before.
 */
export async function failBatch(
  sql: DatabaseTransaction,
  id: string,
  faults: readonly BatchFault[],
): Promise<BatchRecord | undefined> {
  const ended =
    await sql`UPDATE batches SET status = 'failed', faults = ${JSON.stringify(faults)}::text::jsonb,
    ended_at = clock_timestamp() WHERE id = ${id} AND ended_at IS NULL`;
  return ended.count === 0 ? undefined : readBatch(sql as unknown as Database, id);
}

/** Records that every line has its result. The files are written next. */
export async function finalizeBatch(
  sql: DatabaseTransaction,
  id: string,
  endsAs: BatchEnd,
  files: { readonly output: string; readonly errors: string },
): Promise<void> {
  await sql`UPDATE batches SET ends_as = ${endsAs}, attempts = 0, finalizing_at = clock_timestamp(),
      status = CASE status WHEN 'cancelling' THEN status ELSE 'finalizing' END,
      output_file = CASE WHEN completed > 0 THEN ${files.output} END,
      error_file = CASE WHEN failed > 0 THEN ${files.errors} END
    WHERE id = ${id} AND ends_as IS NULL AND NOT EXISTS (
      SELECT FROM provider_batch_lines WHERE batch_id = ${id} AND request_id IS NOT NULL)`;
}

/**
 * Records that the files are written. The contents of its lines are removed next. Returns the updated batch, or
 * undefined if it had ended before.
 */
export async function endBatch(
  sql: DatabaseTransaction,
  id: string,
): Promise<BatchRecord | undefined> {
  const ended = await sql`UPDATE batches SET status = coalesce(ends_as, 'cancelled'), attempts = 0,
    ended_at = clock_timestamp() WHERE id = ${id} AND ended_at IS NULL`;
  return ended.count === 0 ? undefined : readBatch(sql as unknown as Database, id);
}

/** Delays the next attempt. The delay doubles with each attempt without progress. */
export async function postponeBatch(
  sql: DatabaseTransaction,
  id: string,
  { firstMs, longestMs }: { readonly firstMs: number; readonly longestMs: number },
): Promise<void> {
  await sql`UPDATE batches SET attempts = attempts + 1,
    due_at = clock_timestamp() + make_interval(
      secs => least(${firstMs / 1_000}::float8 * 2 ^ least(attempts, 20), ${longestMs / 1_000}::float8))
    WHERE id = ${id}`;
}

/** Delays the next check until this time, or until the batch is to end. */
export async function restBatchFor(
  sql: DatabaseTransaction,
  { id, status }: Pick<BatchRecord, "id" | "status">,
  delayMs: number,
): Promise<void> {
  const isToEnd = sql`status <> ${status}`;
  await sql`UPDATE batches SET attempts = 0, due_at = CASE WHEN ${isToEnd} THEN clock_timestamp()
      ELSE clock_timestamp() + make_interval(secs => ${delayMs / 1_000}::float8) END
    WHERE id = ${id}`;
}

/** Records that no work is left. */
export async function restBatch(sql: DatabaseTransaction, id: string): Promise<void> {
  await sql`UPDATE batches SET due_at = NULL WHERE id = ${id}`;
}
