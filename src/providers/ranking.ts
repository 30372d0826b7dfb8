import { isFields } from "../lib/json.ts";
import type { Ranking } from "./interface.ts";
import { brokenAnswer } from "./transport/call-failures.ts";

/**
 * Returns the ranking of `documents` documents, in the forms of Cohere (https://docs.cohere.com/v2/reference/rerank),
 * Jina and compatible servers, and Voyage, whose list is `data`. Throws ProviderFailure if a document has no score.
 */
export function rankingOf(answer: Readonly<Record<string, unknown>>, documents: number): Ranking {
  const list = answer.results ?? answer.data;
  if (!Array.isArray(list) || list.length !== documents) {
    throw brokenAnswer("a number of results that differs from the number of documents");
  }
  const scores: number[] = new Array(documents);
  for (const result of list) {
    const { index, relevance_score: relevance, score = relevance } = isFields(result) ? result : {};
    if (!Number.isInteger(index) || (index as number) < 0 || (index as number) >= documents) {
      throw brokenAnswer("a result for an unknown document");
    }
    if (scores[index as number] !== undefined) throw brokenAnswer("two results for one document");
    if (!Number.isFinite(score)) throw brokenAnswer("a result without a score");
    scores[index as number] = score as number;
  }
  const { usage, meta } = answer;
  const { billed_units: billed, tokens } = isFields(meta) ? meta : {};
  return {
    scores,
    promptTokens:
      countOf(usage, "prompt_tokens") ??
      countOf(usage, "total_tokens") ??
      countOf(billed, "input_tokens") ??
      countOf(billed, "total_tokens") ??
      countOf(tokens, "input_tokens"),
    searchUnits: countOf(billed, "search_units") ?? countOf(usage, "search_units"),
  };
}

/** Returns a count, or undefined if it is not a positive integer: no ranking costs 0 units. */
function countOf(holder: unknown, name: string): number | undefined {
  const value = isFields(holder) ? holder[name] : undefined;
  return Number.isSafeInteger(value) && (value as number) > 0 ? (value as number) : undefined;
}
