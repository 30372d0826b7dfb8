import type { ModelTerms } from "../../../lib/catalogue-model.ts";
import { exact, times } from "../../../lib/exact-integer.ts";
import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import { estimatedUsage, NO_TOKENS, type Usage } from "../../../lib/usage.ts";
import type { Ranking } from "../../../providers/interface.ts";
import { type CostBound, fixedBound } from "../../call/endpoint.ts";
import { inputBound } from "../input-only.ts";

/** The sizes that determine the cost of a request, in UTF-8 bytes. Every token has at least one byte. */
export interface RankingSize {
  readonly queryBytes: number;
  readonly documentBytes: readonly number[];
}

/** Documents, or pieces of longer documents, in one search unit. See https://cohere.com/pricing. */
const PIECES_A_UNIT = 100;
/** Maximum tokens of the query and a piece of a document together. */
const PIECE_TOKENS = 500;
/** Minimum tokens of a document in a piece, however long the query is. */
const MIN_PIECE_TOKENS = 50;
/** Tokens added to the query and a document, which the model reads together. */
const TOKENS_AROUND_DOCUMENT = 16;

export function bySearchUnit({ prices }: ModelTerms): boolean {
  return prices.searchUnitFemto !== undefined;
}

/**
 * Returns an upper bound of the cost: all search units, or all tokens of the documents, each read with the
 * query.
 */
export function rankingBound(size: RankingSize, terms: ModelTerms): CostBound {
  if (bySearchUnit(terms)) {
    const units = unitsOf(size.queryBytes, size.documentBytes);
    return fixedBound(times(units, exact(terms.prices.searchUnitFemto!)), 0);
  }
  return inputBound(tokensOf(size.queryBytes, size.documentBytes, TOKENS_AROUND_DOCUMENT), terms);
}

/** Returns the usage that the provider reported, or an estimate from the texts. */
export function rankingUsage(
  { promptTokens, searchUnits }: Ranking,
  size: RankingSize,
  terms: ModelTerms,
): Usage {
  const query = tokensOfBytes(size.queryBytes);
  const documents = size.documentBytes.map(tokensOfBytes);
  if (bySearchUnit(terms)) {
    const units = searchUnits ?? unitsOf(query, documents);
    return { ...NO_TOKENS, searchUnits: units, estimated: searchUnits === undefined };
  }
  if (promptTokens === undefined) return estimatedUsage(tokensOf(query, documents, 0), 0);
  return { ...estimatedUsage(promptTokens, 0), estimated: false };
}

function unitsOf(query: number, documents: readonly number[]): number {
  const pieceTokens = Math.max(MIN_PIECE_TOKENS, PIECE_TOKENS - query);
  const pieces = documents.reduce(
    (sum, tokens) => sum + Math.max(1, Math.ceil(tokens / pieceTokens)),
    0,
  );
  return Math.ceil(pieces / PIECES_A_UNIT);
}

function tokensOf(query: number, documents: readonly number[], around: number): number {
  return documents.reduce((sum, tokens) => sum + query + tokens + around, 0);
}
