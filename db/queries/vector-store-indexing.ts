import type { ChunkingStrategy, IndexingError } from "../../src/lib/vector-store.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { vectorStoreFiles } from "../schema/vector-stores.ts";

const storedFile = recordReader(
  vectorStoreFiles,
  "batchId",
  "errorCode",
  "errorMessage",
  "attributes",
  "maxChunkTokens",
  "overlapTokens",
  "usageBytes",
  "dueAt",
  "createdAt",
);

type IndexedRow = RowOf<typeof vectorStoreFiles> & { readonly store_number: bigint | null };

/** A file in a store, with the data for its owner. Its number names its chunks. */
export type IndexedFile = ReturnType<typeof indexedFile>;

function indexedFile(row: IndexedRow) {
  const chunking: ChunkingStrategy = {
    maxTokens: row.max_chunk_tokens,
    overlapTokens: row.overlap_tokens,
  };
  return { ...storedFile(row), storeNumber: row.store_number, chunking };
}

export async function readIndexedFile(sql: Database, id: string): Promise<IndexedFile | undefined> {
  const [row] = await sql<IndexedRow[]>`
    SELECT f.*, s.number AS store_number FROM vector_store_files f
    LEFT JOIN vector_stores s ON s.id = f.vector_store_id WHERE f.id = ${id}`;
  return row && indexedFile(row);
}

export interface NewChunk {
  readonly text: string;
  /** Words of the text, as `searchWords` returns them. */
  readonly words: string;
}

/** Writes chunks that no search finds before `completeText`. */
export async function insertChunks(
  sql: DatabaseTransaction,
  { number, storeNumber }: Pick<IndexedFile, "number" | "storeNumber">,
  firstPosition: number,
  chunks: readonly NewChunk[],
): Promise<void> {
  await sql`
    INSERT INTO vector_store_chunks (file, position, text, words, length)
    SELECT ${number.toString()}::bigint, ${firstPosition}::int + c.nth::int - 1, c.text,
      array_to_tsvector(w.stems), cardinality(w.stems)
    FROM ROWS FROM (unnest(${sql.array(chunks.map(({ text }) => text))}::text[]),
      unnest(${sql.array(chunks.map(({ words }) => words))}::text[])) WITH ORDINALITY AS c (text, words, nth)
    CROSS JOIN LATERAL (
      SELECT coalesce(array_agg(${`${storeNumber}:`} || stem), '{}') AS stems
      FROM unnest(tsvector_to_array(to_tsvector('english', c.words))) AS stem) w`;
}

export interface ChunkLimits {
  readonly maxOfStore: number;
  readonly maxOfOrganization: number;
}

/**
 * Records that all chunks are written: searches find the file from now on, or once it is embedded. Returns `full` if
 * the store or the organization has no space for them, `moved` if the file was removed or cancelled in the meantime.
 */
export async function completeText(
  sql: DatabaseTransaction,
  { id, vectorStoreId, organizationId, embeddingModel }: IndexedFile,
  written: { readonly chunks: number; readonly usageBytes: number },
  { maxOfStore, maxOfOrganization }: ChunkLimits,
): Promise<"written" | "full" | "moved"> {
  // One file of an organization at a time, so that the count is exact.
  await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`vector chunks ${organizationId}`}, 0))`;
  const [sums] = await sql<{ of_store: bigint; of_organization: bigint }[]>`
    SELECT coalesce(sum(chunks) FILTER (WHERE vector_store_id = ${vectorStoreId}), 0)::bigint AS of_store,
      coalesce(sum(chunks), 0)::bigint AS of_organization
    FROM vector_store_files WHERE organization_id = ${organizationId} AND status <> 'removed'`;
  const isFull =
    Number(sums!.of_store) + written.chunks > maxOfStore ||
    Number(sums!.of_organization) + written.chunks > maxOfOrganization;
  if (isFull) return "full";
  const updated = await sql`
    UPDATE vector_store_files SET chunks = ${written.chunks}, usage_bytes = ${written.usageBytes}, attempts = 0
    WHERE id = ${id} AND status = 'in_progress'`;
  if (embeddingModel === null) await completeFile(sql, id);
  return updated.count > 0 ? "written" : "moved";
}

/**
 * Records that searches find the file from now on, unless it was removed or cancelled in the meantime.
 */
export async function completeFile(sql: DatabaseTransaction, id: string): Promise<void> {
  await sql`UPDATE vector_store_files SET status = 'completed', due_at = NULL, attempts = 0
    WHERE id = ${id} AND status = 'in_progress'`;
}

/** Records that the file has no text that can be found. Its owner removes the written chunks. */
export async function failIndexing(
  sql: DatabaseTransaction,
  id: string,
  { code, message }: IndexingError,
): Promise<void> {
  await sql`UPDATE vector_store_files SET status = 'failed', error_code = ${code},
      error_message = ${message}, due_at = clock_timestamp(), attempts = 0, chunks = 0, usage_bytes = 0
    WHERE id = ${id} AND status = 'in_progress'`;
}

/** Delays the next attempt by this many milliseconds. Counts this attempt if it has failed. */
export async function postponeIndexing(
  sql: DatabaseTransaction,
  id: string,
  delayMs: number,
  { isFailure }: { readonly isFailure: boolean },
): Promise<void> {
  await sql`UPDATE vector_store_files SET attempts = attempts + ${isFailure ? 1 : 0},
      due_at = clock_timestamp() + make_interval(secs => ${delayMs / 1_000})
    WHERE id = ${id}`;
}

const CHUNKS_AT_A_TIME = 1_000;

/** Deletes some chunks of a file. Returns true if there may be more. */
export async function deleteChunks(sql: DatabaseTransaction, file: bigint): Promise<boolean> {
  const number = file.toString();
  const deleted =
    await sql`DELETE FROM vector_store_chunks WHERE file = ${number}::bigint AND position IN (
    SELECT position FROM vector_store_chunks WHERE file = ${number}::bigint
    ORDER BY position LIMIT ${CHUNKS_AT_A_TIME})`;
  return deleted.count === CHUNKS_AT_A_TIME;
}

/** Deletes the row of a removed file, or ends the work on any other file. Call it after the chunks are deleted. */
export async function endRemoval(sql: DatabaseTransaction, id: string): Promise<void> {
  await sql`DELETE FROM vector_store_files WHERE id = ${id} AND status = 'removed'`;
  await sql`UPDATE vector_store_files SET due_at = NULL
    WHERE id = ${id} AND status IN ('failed', 'cancelled')`;
}

/** Returns the chunks of a file in their order, starting at a position. */
export async function readChunkTexts(
  sql: Database,
  storeFileId: string,
  firstPosition: number,
  limit: number,
): Promise<string[]> {
  const rows = await sql<{ text: string }[]>`
    SELECT c.text FROM vector_store_files f JOIN vector_store_chunks c ON c.file = f.number
    WHERE f.id = ${storeFileId} AND f.status = 'completed' AND c.position >= ${firstPosition}
    ORDER BY c.position LIMIT ${limit}`;
  return rows.map(({ text }) => text);
}
