import type { Database, DatabaseTransaction } from "../client.ts";
import { type ChunkPosition, type SearchScope, searchedFiles } from "./vector-store-search.ts";

/** An embedding in its stored form. */
export interface QuantisedVector {
  /** Signs of the embedding, one digit for each number: 1 if it is above 0. */
  readonly signs: string;
  readonly bytes: Uint8Array;
  /** Factor that turns the bytes into the embedding, at length 1. */
  readonly scale: number;
}

export interface WaitingChunks {
  readonly firstPosition: number;
  /** Empty: all are embedded. */
  readonly texts: readonly string[];
}

/**
 * Returns the next chunks of a file that are not embedded. They are embedded in their order. Returns undefined if the
 * file was removed or cancelled.
 */
export async function readWaitingChunks(
  sql: Database,
  file: bigint,
  limit: number,
): Promise<WaitingChunks | undefined> {
  const number = file.toString();
  const [row] = await sql<{ first_position: number; texts: string[] | null }[]>`
    SELECT p.first_position, (
      SELECT array_agg(c.text ORDER BY c.position) FROM vector_store_chunks c
      WHERE c.file = f.number AND c.position >= p.first_position
        AND c.position < p.first_position + ${limit}::int) AS texts
    FROM vector_store_files f CROSS JOIN LATERAL (
      SELECT coalesce(max(v.position) + 1, 0) AS first_position FROM vector_store_vectors v
      WHERE v.file = f.number) p
    WHERE f.number = ${number}::bigint AND f.status = 'in_progress'`;
  return row && { firstPosition: row.first_position, texts: row.texts ?? [] };
}

/** Writes embeddings of consecutive chunks. Writes none if the file was removed or cancelled. */
export async function insertVectors(
  sql: DatabaseTransaction,
  file: bigint,
  firstPosition: number,
  vectors: readonly QuantisedVector[],
): Promise<void> {
  const number = file.toString();
  await sql`
    INSERT INTO vector_store_vectors (file, position, signs, bytes, scale)
    SELECT f.number, ${firstPosition}::int + v.nth::int - 1, v.signs::varbit, decode(v.bytes, 'base64'), v.scale
    FROM vector_store_files f CROSS JOIN ROWS FROM (
      unnest(${sql.array(vectors.map(({ signs }) => signs))}::text[]),
      unnest(${sql.array(vectors.map(({ bytes }) => base64Of(bytes)))}::text[]),
      unnest(${sql.array(vectors.map(({ scale }) => scale))}::real[])) WITH ORDINALITY AS v (signs, bytes, scale, nth)
    WHERE f.number = ${number}::bigint AND f.status = 'in_progress'`;
  // The next chunks do not inherit earlier failures.
  await sql`UPDATE vector_store_files SET attempts = 0 WHERE number = ${number}::bigint AND attempts > 0`;
}

function base64Of({ buffer, byteOffset, byteLength }: Uint8Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString("base64");
}

/** Returns true if a search finds files that are embedded with the model. */
export async function hasVectors(
  sql: Database,
  scope: SearchScope,
  embeddingModel: string,
): Promise<boolean> {
  const [row] = await sql`SELECT 1 FROM (${searchedFiles(sql, scope)}) f
    WHERE f.embedding_model = ${embeddingModel} LIMIT 1`;
  return row !== undefined;
}

export interface NearChunk extends ChunkPosition, Pick<QuantisedVector, "bytes" | "scale"> {}

/**
 * Returns the chunks whose embeddings have the most signs in common with the embedding of the question, in no order. It
 * compares every embedding that the search can find.
 */
export async function findBySigns(
  sql: Database,
  scope: SearchScope,
  embeddingModel: string,
  signs: string,
  limit: number,
): Promise<NearChunk[]> {
  const rows = await sql.begin(async (transaction) => {
    // For a table that has just grown, the planner would read every row. Compilation takes longer than the scan.
    await transaction`SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`;
    return transaction<NearChunk[]>`
    WITH files AS MATERIALIZED (
      SELECT number FROM (${searchedFiles(sql, scope)}) f WHERE f.embedding_model = ${embeddingModel}
    ), question AS MATERIALIZED (SELECT ${signs}::varbit AS signs),
    nearest AS MATERIALIZED (
      SELECT v.file, v.position FROM files f CROSS JOIN question q CROSS JOIN LATERAL (
        SELECT file, position,
          CASE WHEN length(signs) = length(q.signs) THEN bit_count(signs # q.signs) END AS distance
        FROM vector_store_vectors WHERE file = f.number OFFSET 0) v
      WHERE v.distance IS NOT NULL
      ORDER BY v.distance, v.file, v.position LIMIT ${limit}
    )
    SELECT v.file, v.position, v.bytes, v.scale
    FROM nearest n JOIN vector_store_vectors v ON v.file = n.file AND v.position = n.position`;
  });
  return rows.map(({ file, position, bytes, scale }) => ({ file, position, bytes, scale }));
}
