import type { Database } from "../../db/client.ts";
import {
  type ChunkPlace,
  type FoundChunk,
  findByWords,
  readFoundChunks,
} from "../../db/queries/vector-store-search.ts";
import { noteStoresUsed } from "../../db/queries/vector-stores.ts";
import type { AttributeFilter } from "../lib/vector-store.ts";
import { searchWords } from "./search-words.ts";

export interface SearchOptions {
  readonly filter: AttributeFilter | undefined;
  readonly maxResults: number;
  /** 0 to 1; results below it are left out. */
  readonly scoreThreshold: number;
}

export interface SearchResult extends FoundChunk {
  /** 0 to 1: 1 is first in every ranking. */
  readonly score: number;
}

/** Chunks that one ranking contributes. */
const RANKED_CHUNKS = 100;

/**
 * Searches stores of an organization; stores that it does not have, or that have expired, hold nothing. Several
 * queries are fused like rankings of one.
 */
export async function searchVectorStores(
  sql: Database,
  organizationId: string,
  vectorStoreIds: readonly string[],
  queries: readonly string[],
  { filter, maxResults, scoreThreshold }: SearchOptions,
): Promise<SearchResult[]> {
  const scope = { organizationId, vectorStoreIds, filter };
  const rankings: ChunkPlace[][] = [];
  for (const query of queries) {
    rankings.push(await findByWords(sql, scope, searchWords(query), RANKED_CHUNKS));
  }
  const best = fuseRankings(rankings)
    .filter(({ score }) => score >= scoreThreshold)
    .slice(0, maxResults);
  await noteStoresUsed(sql, vectorStoreIds);
  const found = await readFoundChunks(sql, organizationId, best);
  const byPlace = new Map(found.map((chunk) => [nameOf(chunk), chunk]));
  return best.flatMap((place) => {
    const chunk = byPlace.get(nameOf(place));
    return chunk === undefined ? [] : { ...chunk, score: place.score };
  });
}

/** How slowly a rank loses weight (Cormack, Clarke and Büttcher, 2009). */
const RANK_OFFSET = 60;

/** Reciprocal rank fusion, the best first; 1 is the score of what is first in every ranking. */
export function fuseRankings(
  rankings: readonly (readonly ChunkPlace[])[],
): (ChunkPlace & { score: number })[] {
  const fused = new Map<string, ChunkPlace & { score: number }>();
  const ofFirst = (RANK_OFFSET + 1) / rankings.length;
  for (const ranking of rankings) {
    for (const [at, place] of ranking.entries()) {
      const name = nameOf(place);
      const score = (fused.get(name)?.score ?? 0) + ofFirst / (RANK_OFFSET + 1 + at);
      fused.set(name, { ...place, score });
    }
  }
  return [...fused.values()]
    .map((entry) => ({ ...entry, score: Math.min(1, entry.score) }))
    .sort((a, b) => b.score - a.score || (a.file < b.file ? -1 : 1) || a.position - b.position);
}

function nameOf({ file, position }: ChunkPlace): string {
  return `${file}/${position}`;
}
