import type { AttributeFilter, Attributes } from "../../src/lib/vector-store.ts";
import type { Database, SqlFragment } from "../client.ts";

/** The stores and files that a search reads. */
export interface SearchScope {
  readonly organizationId: string;
  readonly vectorStoreIds: readonly string[];
  readonly filter: AttributeFilter | undefined;
}

/** A matching chunk. In a list of them the best one comes first. */
export interface ChunkPosition {
  readonly file: bigint;
  readonly position: number;
}

/** Returns the files that a search may find, with the number of their store. */
export function searchedFiles(
  sql: Database,
  { organizationId, vectorStoreIds, filter }: SearchScope,
): SqlFragment {
  return sql`SELECT f.number, f.chunks, f.embedding_model, s.number AS store
    FROM vector_store_files f JOIN vector_stores s ON s.id = f.vector_store_id
    WHERE f.organization_id = ${organizationId} AND s.organization_id = ${organizationId}
      AND f.vector_store_id = ANY (${sql.array([...vectorStoreIds])}::text[])
      AND f.status = 'completed' AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())
      ${filter === undefined ? sql`` : sql`AND ${conditionOf(sql, filter)}`}`;
}

const COMPARISONS = { gt: ">", gte: ">=", lt: "<", lte: "<=" } as const;

/**
 * A file without the attribute differs from every value, and is neither greater nor less than any.
 */
function conditionOf(sql: Database, filter: AttributeFilter): SqlFragment {
  switch (filter.type) {
    case "and":
    case "or": {
      const [first, ...others] = filter.filters.map((one) => conditionOf(sql, one));
      if (first === undefined) return filter.type === "and" ? sql`true` : sql`false`;
      const joined = others.reduce(
        (left, right) =>
          filter.type === "and" ? sql`${left} AND ${right}` : sql`${left} OR ${right}`,
        first,
      );
      return sql`(${joined})`;
    }
    case "eq":
      return sql`(f.attributes -> ${filter.key}::text IS NOT DISTINCT FROM ${json(filter.value)}::text::jsonb)`;
    case "ne":
      return sql`(f.attributes -> ${filter.key}::text IS DISTINCT FROM ${json(filter.value)}::text::jsonb)`;
    case "in":
    case "nin": {
      const isIn = sql`coalesce(${json(filter.value)}::text::jsonb @> (f.attributes -> ${filter.key}::text), false)`;
      return filter.type === "in" ? isIn : sql`NOT ${isIn}`;
    }
    default: {
      const value = sql`${json(filter.value)}::text::jsonb`;
      return sql`coalesce(jsonb_typeof(f.attributes -> ${filter.key}::text) = jsonb_typeof(${value})
        AND (f.attributes -> ${filter.key}::text) ${sql.unsafe(COMPARISONS[filter.type])} ${value}, false)`;
    }
  }
}

function json(value: unknown): string {
  return JSON.stringify(value);
}

/** Largest number of stems of a question, because each costs an index look-up. */
const MAX_STEMS = 32;
/** Weight of a chunk's number of different words (BM25's b). */
const LENGTH_WEIGHT = 0.75;
/** BM25's k1. Each word counts once in a chunk. */
const SATURATION = 1.2;

/**
 * Returns chunks with words of the question, the chunks with the rarest words first: BM25, with each word counted once
 * in a chunk.
 *
 * @param words words of the question, as `searchWords` returns them
 */
export async function findByWords(
  sql: Database,
  scope: SearchScope,
  words: string,
  limit: number,
): Promise<ChunkPosition[]> {
  const rows = await sql.begin(async (transaction) => {
    // For a table that has just grown, the planner would read every row for each word.
    await transaction`SELECT set_config('enable_seqscan', 'off', true)`;
    return transaction<ChunkPosition[]>`
    WITH files AS MATERIALIZED (${searchedFiles(sql, scope)}),
    stems AS (
      SELECT stem FROM unnest(tsvector_to_array(to_tsvector('english', ${words}))) AS stem
      LIMIT ${MAX_STEMS}
    ), hits AS MATERIALIZED (
      SELECT a.stem, c.file, c.position, c.length
      FROM (SELECT q.stem, '''' || s.store || ':' || q.stem || '''' AS query
        FROM stems q CROSS JOIN (SELECT DISTINCT store FROM files) s) a
      CROSS JOIN LATERAL (
        SELECT file, position, length FROM vector_store_chunks WHERE words @@ a.query::tsquery OFFSET 0) c
      JOIN files f ON f.number = c.file
    ), weights AS MATERIALIZED (
      SELECT stem, ln(1 + ((SELECT sum(chunks) FROM files) - count(*) + 0.5) / (count(*) + 0.5))::float8 AS weight
      FROM hits GROUP BY stem
    ), average AS MATERIALIZED (SELECT avg(length)::float8 AS length FROM hits)
    SELECT h.file, h.position FROM hits h JOIN weights w ON w.stem = h.stem CROSS JOIN average a
    GROUP BY h.file, h.position
    ORDER BY sum(w.weight / (1 + ${SATURATION}::float8
      * (${1 - LENGTH_WEIGHT}::float8 + ${LENGTH_WEIGHT}::float8 * h.length / a.length))) DESC, h.file, h.position
    LIMIT ${limit}`;
  });
  return rows.map(({ file, position }) => ({ file, position }));
}

export interface FoundChunk extends ChunkPosition {
  readonly fileId: string;
  readonly filename: string;
  readonly attributes: Attributes;
  readonly text: string;
}

/**
 * Returns the chunks at these positions, in any order. Chunks that were removed in the meantime are missing.
 */
export async function readFoundChunks(
  sql: Database,
  organizationId: string,
  positions: readonly ChunkPosition[],
): Promise<FoundChunk[]> {
  const rows = await sql<(Omit<FoundChunk, "fileId"> & { readonly file_id: string })[]>`
    SELECT c.file, c.position, f.file_id, o.filename, f.attributes, c.text
    FROM ROWS FROM (unnest(${sql.array(positions.map(({ file }) => file.toString()))}::text[]::bigint[]),
      unnest(${sql.array(positions.map(({ position }) => position))}::int[])) AS p (file, position)
    JOIN vector_store_chunks c ON c.file = p.file AND c.position = p.position
    JOIN vector_store_files f ON f.number = c.file
    JOIN files o ON o.id = f.file_id
    WHERE f.organization_id = ${organizationId} AND f.status = 'completed'
      AND (o.expires_at IS NULL OR o.expires_at > clock_timestamp())`;
  return rows.map(({ file_id: fileId, ...row }) => ({ ...row, fileId }));
}
