import type { Database } from "../../../db/client.ts";
import {
  type ChunkPosition,
  type FoundChunk,
  findByWords,
  readFoundChunks,
  type SearchScope,
} from "../../../db/queries/vector-store-search.ts";
import { findBySigns } from "../../../db/queries/vector-store-vectors.ts";
import { noteStoresUsed } from "../../../db/queries/vector-stores.ts";
import { searchWords } from "../../documents/search-words.ts";
import type { AttributeFilter } from "../../lib/vector-store.ts";
import { nearness, quantised } from "./quantised-vector.ts";

export interface SearchOptions {
  readonly filter: AttributeFilter | undefined;
  readonly maxResults: number;
  /** Minimum score, 0 to 1. Results below it are left out. */
  readonly scoreThreshold: number;
  /** Weights of the rankings, used if both exist. At least one is above 0. */
  readonly weights: RankingWeights;
}

export interface RankingWeights {
  readonly embedding: number;
  readonly text: number;
}

/** Questions with their embeddings, in order. */
export interface EmbeddedQuestions {
  readonly model: string;
  readonly embeddings: readonly ArrayLike<number>[];
}

export interface SearchResult extends FoundChunk {
  /** 0 to 1. A chunk that is first in every ranking has 1. */
  readonly score: number;
}

/** Maximum chunks of one ranking. */
const RANKED_CHUNKS = 100;
/** Number of chunks with the nearest signs whose embeddings are compared. */
const COMPARED_CHUNKS = 400;

/** Chunks, best first. */
interface Ranking {
  readonly weight: number;
  readonly chunks: readonly ChunkPosition[];
}

/**
 * Searches stores of an organization. Stores that do not exist or have expired have no results. Several
 * queries are fused like rankings of one query.
 *
 * @param embedded embedded questions; undefined to search only by words
 */
export async function searchVectorStores(
  sql: Database,
  scope: SearchScope,
  queries: readonly string[],
  { maxResults, scoreThreshold, weights }: SearchOptions,
  embedded: EmbeddedQuestions | undefined,
): Promise<SearchResult[]> {
  const { organizationId, vectorStoreIds } = scope;
  const rankings: Ranking[] = [];
  for (const [n, query] of queries.entries()) {
    const embedding = embedded?.embeddings[n];
    if (embedding === undefined || weights.text > 0) {
      const chunks = await findByWords(sql, scope, searchWords(query), RANKED_CHUNKS);
      rankings.push({ chunks, weight: embedding === undefined ? 1 : weights.text });
    }
    if (embedding !== undefined) {
      const chunks = await findNearest(sql, scope, embedded!.model, embedding);
      rankings.push({ chunks, weight: weights.embedding });
    }
  }
  const best = fuseRankings(rankings)
    .filter(({ score }) => score >= scoreThreshold)
    .slice(0, maxResults);
  await noteStoresUsed(sql, vectorStoreIds);
  const chunks = await readFoundChunks(sql, organizationId, best);
  const byName = new Map(chunks.map((chunk) => [nameOf(chunk), chunk]));
  return best.flatMap((result) => {
    const chunk = byName.get(nameOf(result));
    return chunk === undefined ? [] : { ...chunk, score: result.score };
  });
}

/** Returns the chunks with the nearest embeddings: found by signs, and ordered by bytes. */
async function findNearest(
  sql: Database,
  scope: SearchScope,
  model: string,
  embedding: ArrayLike<number>,
): Promise<ChunkPosition[]> {
  const { signs } = quantised(embedding);
  const near = await findBySigns(sql, scope, model, signs, COMPARED_CHUNKS);
  return near
    .map((chunk) => ({ chunk, nearness: nearness(embedding, chunk) }))
    .sort((a, b) => b.nearness - a.nearness || inOrder(a.chunk, b.chunk))
    .slice(0, RANKED_CHUNKS)
    .map(({ chunk: { file, position } }) => ({ file, position }));
}

function inOrder(a: ChunkPosition, b: ChunkPosition): number {
  return a.file === b.file ? a.position - b.position : a.file < b.file ? -1 : 1;
}

/** Constant that determines how slowly a rank loses weight (Cormack, Clarke and Büttcher, 2009). */
const RANK_OFFSET = 60;

/**
 * Fuses rankings by reciprocal rank fusion, best first. The score of a chunk that is first in every ranking
 * is 1.
 */
export function fuseRankings(rankings: readonly Ranking[]): (ChunkPosition & { score: number })[] {
  const fused = new Map<string, ChunkPosition & { score: number }>();
  const weights = rankings.reduce((sum, { weight }) => sum + weight, 0);
  for (const { chunks, weight } of rankings) {
    const ofFirst = ((RANK_OFFSET + 1) * weight) / weights;
    for (const [at, chunk] of chunks.entries()) {
      const name = nameOf(chunk);
      const score = (fused.get(name)?.score ?? 0) + ofFirst / (RANK_OFFSET + 1 + at);
      fused.set(name, { ...chunk, score });
    }
  }
  return [...fused.values()]
    .map((entry) => ({ ...entry, score: Math.min(1, entry.score) }))
    .sort((a, b) => b.score - a.score || inOrder(a, b));
}

function nameOf({ file, position }: ChunkPosition): string {
  return `${file}/${position}`;
}
