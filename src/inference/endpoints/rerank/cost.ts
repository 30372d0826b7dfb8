import type { ModelTerms } from "../../../lib/catalogue-model.ts";
import { exact, times } from "../../../lib/exact-integer.ts";
import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import { estimatedUsage, NO_TOKENS, type Usage } from "../../../lib/usage.ts";
import type { Ranking } from "../../../providers/interface.ts";
import type { CostBound } from "../../call/endpoint.ts";

/** What the cost of a request depends on, in UTF-8 bytes: no token is shorter than one. */
export interface RankingSize {
  readonly queryBytes: number;
  readonly documentBytes: readonly number[];
}

/** https://cohere.com/pricing: a search unit is a query with up to 100 documents, or pieces of longer ones. */
const PIECES_A_UNIT = 100;
/** Of the query and a piece of a document together. */
const PIECE_TOKENS = 500;
/** What a long query leaves of a piece at least. */
const MIN_PIECE_TOKENS = 50;
/** Around the query and a document, which are read together. */
const TOKENS_AROUND_DOCUMENT = 16;

export function bySearchUnit({ prices }: ModelTerms): boolean {
  return prices.searchUnitFemto !== undefined;
}

/** All pieces that the documents can be cut into, or the tokens that they can be, each with the query. */
export function rankingBound(size: RankingSize, terms: ModelTerms): CostBound {
  const { prices } = terms;
  const none = { perUnitFemto: 0, units: 0, perUnitTokens: 0 };
  if (bySearchUnit(terms)) {
    const units = unitsOf(size.queryBytes, size.documentBytes);
    return { ...none, fixedFemto: times(units, exact(prices.searchUnitFemto!)), fixedTokens: 0 };
  }
  const tokens = tokensOf(size.queryBytes, size.documentBytes, TOKENS_AROUND_DOCUMENT);
  const fixedFemto = times(tokens, exact(prices.inputTokenFemto));
  return { ...none, fixedFemto, fixedTokens: tokens };
}

/** What the provider has reported, or as much as the texts usually are. */
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
