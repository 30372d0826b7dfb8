import { newId, timeOfId } from "../../src/lib/ids.ts";
import type {
  Attributes,
  ChunkingStrategy,
  FileCounts,
  Listed,
  ListPage,
  StoreFileStatus,
  VectorStoreFile,
} from "../../src/lib/vector-store.ts";
import type { Database, DatabaseTransaction, SqlFragment } from "../client.ts";
import type { RowOf } from "../rows.ts";
import type { vectorStoreBatches, vectorStoreFiles } from "../schema/vector-stores.ts";
import { recordChange } from "./changes.ts";
import { listedOf, pageStart } from "./id-pages.ts";

/** Kind of the leases of files in stores. */
export const VECTOR_STORE_FILE = "vector-store-file";

/** A row of a file that is not removed. */
type StoreFileRow = RowOf<typeof vectorStoreFiles> & { readonly status: StoreFileStatus };

function fileRecord(row: StoreFileRow): VectorStoreFile {
  return {
    id: row.id,
    organizationId: row.organization_id,
    vectorStoreId: row.vector_store_id,
    fileId: row.file_id,
    status: row.status,
    error:
      row.error_code === null ? null : { code: row.error_code, message: row.error_message ?? "" },
    attributes: row.attributes,
    chunking: { maxTokens: row.max_chunk_tokens, overlapTokens: row.overlap_tokens },
    usageBytes: Number(row.usage_bytes),
    embeddingModel: row.embedding_model,
    createdAtMs: row.created_at.getTime(),
  };
}

export interface AddedFile {
  readonly fileId: string;
  readonly attributes: Attributes;
  readonly chunking: ChunkingStrategy;
}

export interface Addition {
  readonly organizationId: string;
  readonly vectorStoreId: string;
  readonly batchId: string | null;
  /** Different files. */
  readonly files: readonly AddedFile[];
  readonly maxFiles: number;
  /** The key that adds them, which pays if they are embedded. */
  readonly keyId: string;
  /** Null: only their words are indexed. */
  readonly embeddingModel: string | null;
}

/** Why files cannot be added. */
export class AdditionRejectedError extends Error {
  readonly reason: "no_store" | "expired" | "full" | "no_file" | "not_processed";
  readonly fileId: string | undefined;

  constructor(reason: AdditionRejectedError["reason"], fileId?: string) {
    super(`files cannot be added: ${reason}`);
    this.name = "AdditionRejectedError";
    this.reason = reason;
    this.fileId = fileId;
  }
}

/**
 * Adds files to a store, to be indexed by their owners. For an existing file with the same chunking, embedded if
 * requested, it only sets the attributes. A file with another chunking or model, or one that failed, is replaced.
 * Throws AdditionRejectedError if the store or a file cannot be used, or if the store is full.
 */
export async function addStoreFiles(sql: DatabaseTransaction, addition: Addition): Promise<void> {
  const { vectorStoreId, files, maxFiles } = addition;
  await lockStore(sql, addition);
  await lockFiles(sql, addition);
  for (const file of files) {
    if (await keepPresent(sql, addition, file)) continue;
    await removeStoreFile(sql, addition.organizationId, vectorStoreId, file.fileId);
    await insertStoreFile(sql, addition, file);
  }
  const [count] = await sql<{ files: bigint }[]>`
    SELECT count(*) AS files FROM vector_store_files
    WHERE vector_store_id = ${vectorStoreId} AND status <> 'removed'`;
  if (count!.files > BigInt(maxFiles)) throw new AdditionRejectedError("full");
  await recordChange(sql, "vector-store-work", addition.organizationId);
}

async function lockStore(
  sql: DatabaseTransaction,
  { organizationId, vectorStoreId }: Addition,
): Promise<void> {
  const [store] = await sql<{ is_expired: boolean }[]>`
    UPDATE vector_stores SET last_active_at = clock_timestamp(),
      expires_at = CASE WHEN expires_at <= clock_timestamp() THEN expires_at
        ELSE clock_timestamp() + make_interval(days => expires_after_days) END
    WHERE id = ${vectorStoreId} AND organization_id = ${organizationId}
    RETURNING coalesce(expires_at <= clock_timestamp(), false) AS is_expired`;
  if (store === undefined) throw new AdditionRejectedError("no_store");
  if (store.is_expired) throw new AdditionRejectedError("expired");
}

/**
 * A concurrent deletion of a file waits for the lock, and then removes the file from the store too.
 */
async function lockFiles(sql: DatabaseTransaction, addition: Addition): Promise<void> {
  const ids = addition.files.map(({ fileId }) => fileId);
  const rows = await sql<{ id: string; status: string }[]>`
    SELECT id, status FROM files
    WHERE organization_id = ${addition.organizationId} AND id = ANY (${sql.array(ids)}::text[])
      AND (expires_at IS NULL OR expires_at > clock_timestamp()) ORDER BY id FOR SHARE`;
  const statuses = new Map(rows.map(({ id, status }) => [id, status]));
  for (const id of ids) {
    const status = statuses.get(id);
    if (status === undefined) throw new AdditionRejectedError("no_file", id);
    if (status !== "processed") throw new AdditionRejectedError("not_processed", id);
  }
}

async function keepPresent(
  sql: DatabaseTransaction,
  { vectorStoreId, batchId, embeddingModel }: Addition,
  { fileId, attributes, chunking }: AddedFile,
): Promise<boolean> {
  const update = await sql`
    UPDATE vector_store_files SET attributes = ${JSON.stringify(attributes)}::text::jsonb,
      batch_id = coalesce(${batchId}, batch_id)
    WHERE vector_store_id = ${vectorStoreId} AND file_id = ${fileId}
      AND status IN ('in_progress', 'completed')
      AND max_chunk_tokens = ${chunking.maxTokens} AND overlap_tokens = ${chunking.overlapTokens}
      AND (${embeddingModel}::text IS NULL OR embedding_model = ${embeddingModel})`;
  return update.count > 0;
}

async function insertStoreFile(
  sql: DatabaseTransaction,
  { organizationId, vectorStoreId, batchId, keyId, embeddingModel }: Addition,
  { fileId, attributes, chunking }: AddedFile,
): Promise<void> {
  const id = newId("vsf");
  await sql`
    INSERT INTO vector_store_files (id, organization_id, vector_store_id, file_id, batch_id, key_id,
      embedding_model, status, attributes, max_chunk_tokens, overlap_tokens, due_at, created_at)
    VALUES (${id}, ${organizationId}, ${vectorStoreId}, ${fileId}, ${batchId}, ${keyId}, ${embeddingModel}, 'in_progress',
      ${JSON.stringify(attributes)}::text::jsonb, ${chunking.maxTokens}, ${chunking.overlapTokens},
      clock_timestamp(), ${new Date(timeOfId(id))})`;
}

/**
 * Removes files from their stores: requests no longer see them, and their owners remove the rest. Locks in the order of
 * ids, because deletions of stores and of files may meet. Returns their number.
 */
export async function removeStoreFiles(
  sql: DatabaseTransaction,
  condition: SqlFragment,
): Promise<number> {
  const removed = await sql`
    UPDATE vector_store_files SET status = 'removed', due_at = clock_timestamp(), attempts = 0
    WHERE id IN (SELECT id FROM vector_store_files WHERE status <> 'removed' AND ${condition}
      ORDER BY id FOR UPDATE)`;
  return removed.count;
}

/** Removes one file from a store. Returns false if it is not in the store. */
export async function removeStoreFile(
  sql: DatabaseTransaction,
  organizationId: string,
  vectorStoreId: string,
  fileId: string,
): Promise<boolean> {
  const condition = sql`organization_id = ${organizationId} AND vector_store_id = ${vectorStoreId}
    AND file_id = ${fileId}`;
  return (await removeStoreFiles(sql, condition)) > 0;
}

export async function findStoreFile(
  sql: Database,
  organizationId: string,
  vectorStoreId: string,
  fileId: string,
): Promise<VectorStoreFile | undefined> {
  const [row] = await sql<StoreFileRow[]>`
    SELECT * FROM vector_store_files
    WHERE organization_id = ${organizationId} AND vector_store_id = ${vectorStoreId}
      AND file_id = ${fileId} AND status <> 'removed'`;
  return row && fileRecord(row);
}

/** Sets the attributes. Returns undefined if the file is not in the store. */
export async function updateAttributes(
  sql: Database,
  organizationId: string,
  vectorStoreId: string,
  fileId: string,
  attributes: Attributes,
): Promise<VectorStoreFile | undefined> {
  const [row] = await sql<StoreFileRow[]>`
    UPDATE vector_store_files SET attributes = ${JSON.stringify(attributes)}::text::jsonb
    WHERE organization_id = ${organizationId} AND vector_store_id = ${vectorStoreId}
      AND file_id = ${fileId} AND status <> 'removed' RETURNING *`;
  return row && fileRecord(row);
}

export interface StoreFileListing {
  readonly organizationId: string;
  readonly vectorStoreId: string;
  /** Undefined: any batch, and none. */
  readonly batchId: string | undefined;
  readonly status: StoreFileStatus | undefined;
  /** The page to list. Its cursors are ids of files, not of files in stores. */
  readonly page: ListPage;
}

/**
 * Lists a page of a store's files in the order in which they were added. A cursor that names none of them has no
 * effect.
 */
export async function listStoreFiles(
  sql: Database,
  { organizationId, vectorStoreId, batchId, status, page }: StoreFileListing,
): Promise<Listed<VectorStoreFile>> {
  const idOf = async (fileId: string | undefined): Promise<string | undefined> =>
    fileId === undefined
      ? undefined
      : (await findStoreFile(sql, organizationId, vectorStoreId, fileId))?.id;
  const storePage = { ...page, after: await idOf(page.after), before: await idOf(page.before) };
  const { condition, order } = pageStart(sql, sql`id`, storePage);
  const rows = await sql<StoreFileRow[]>`
    SELECT * FROM vector_store_files
    WHERE organization_id = ${organizationId} AND vector_store_id = ${vectorStoreId}
      AND status <> 'removed' ${condition}
      ${batchId === undefined ? sql`` : sql`AND batch_id = ${batchId}`}
      ${status === undefined ? sql`` : sql`AND status = ${status}`}
    ORDER BY id COLLATE "C" ${order} LIMIT ${page.limit + 1}`;
  return listedOf(rows.map(fileRecord), storePage);
}

export interface StoreBatch {
  readonly id: string;
  readonly vectorStoreId: string;
  readonly createdAtMs: number;
  readonly isCancelled: boolean;
  readonly fileCounts: Partial<FileCounts>;
}

export async function insertStoreBatch(
  sql: DatabaseTransaction,
  batch: { readonly id: string; readonly organizationId: string; readonly vectorStoreId: string },
): Promise<void> {
  await sql`INSERT INTO vector_store_batches (id, organization_id, vector_store_id, created_at)
    VALUES (${batch.id}, ${batch.organizationId}, ${batch.vectorStoreId}, ${new Date(timeOfId(batch.id))})`;
}

export async function findStoreBatch(
  sql: Database,
  organizationId: string,
  vectorStoreId: string,
  id: string,
): Promise<StoreBatch | undefined> {
  const [row] = await sql<
    (RowOf<typeof vectorStoreBatches> & { readonly file_counts: Partial<FileCounts> | null })[]
  >`
    SELECT b.created_at, b.cancelled_at, (
      SELECT jsonb_object_agg(c.status, c.files) FROM (
        SELECT status, count(*) AS files FROM vector_store_files
        WHERE batch_id = b.id AND status <> 'removed' GROUP BY status) c) AS file_counts
    FROM vector_store_batches b
    WHERE b.organization_id = ${organizationId} AND b.vector_store_id = ${vectorStoreId} AND b.id = ${id}`;
  if (row === undefined) return undefined;
  return {
    id,
    vectorStoreId,
    createdAtMs: row.created_at.getTime(),
    isCancelled: row.cancelled_at !== null,
    fileCounts: row.file_counts ?? {},
  };
}

/**
 * Cancels a batch: its files that are not indexed yet will not be, and their written chunks are removed.
 */
export async function cancelStoreBatch(sql: DatabaseTransaction, id: string): Promise<void> {
  await sql`UPDATE vector_store_batches SET cancelled_at = coalesce(cancelled_at, clock_timestamp())
    WHERE id = ${id}`;
  await sql`UPDATE vector_store_files SET status = 'cancelled', due_at = clock_timestamp(), attempts = 0,
      chunks = 0, usage_bytes = 0
    WHERE id IN (SELECT id FROM vector_store_files WHERE batch_id = ${id} AND status = 'in_progress'
      ORDER BY id FOR UPDATE)`;
}

const MAX_ORGANIZATIONS_A_LOOK = 1_000;

/**
 * Finds files that have work and no live owner: at most the same number per organization, and none of some.
 */
export async function findDueStoreFiles(
  sql: Database,
  limit: number,
  { mostOfOne, without }: { readonly mostOfOne: number; readonly without: readonly string[] },
): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    WITH RECURSIVE waiting AS (
      (SELECT organization_id FROM vector_store_files WHERE due_at IS NOT NULL
      ORDER BY organization_id LIMIT 1)
      UNION ALL
      SELECT (SELECT f.organization_id FROM vector_store_files f
        WHERE f.due_at IS NOT NULL AND f.organization_id > w.organization_id
        ORDER BY f.organization_id LIMIT 1)
      FROM waiting w WHERE w.organization_id IS NOT NULL
    ), organizations AS (
      SELECT organization_id FROM waiting
      WHERE organization_id IS NOT NULL AND organization_id <> ALL (${sql.array([...without])}::text[])
      LIMIT ${MAX_ORGANIZATIONS_A_LOOK}
    )
    SELECT d.id FROM organizations o CROSS JOIN LATERAL (
      SELECT f.id, row_number() OVER (ORDER BY f.due_at) AS turn FROM vector_store_files f
      WHERE f.organization_id = o.organization_id AND f.due_at <= clock_timestamp()
        AND NOT EXISTS (
          SELECT 1 FROM owned_actors a WHERE a.kind = ${VECTOR_STORE_FILE} AND a.id = f.id)
      ORDER BY f.due_at LIMIT ${mostOfOne}
    ) d ORDER BY d.turn, random() LIMIT ${limit}`;
  return rows.map(({ id }) => id);
}
