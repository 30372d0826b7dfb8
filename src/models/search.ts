import type { Database } from "../../db/client.ts";
import {
  type CatalogueSearchEntry,
  syncCatalogueSearch,
} from "../../db/queries/catalogue-search.ts";
import type { CatalogueModel } from "../lib/catalogue-model.ts";
import type { ModelIndex } from "../providers/catalogue/model-index.ts";

/** Makes the models of this process the ones that a search finds. Cheap where that is so already. */
export async function publishSearch(sql: Database, models: ModelIndex): Promise<void> {
  await syncCatalogueSearch(sql, models.all().map(searchEntry));
}

function providersOf(model: CatalogueModel): string[] {
  return [...new Set(model.endpoints.map(({ provider }) => provider))];
}

/** What a model can be found by, weightiest first: its name, where it comes from, its description. */
function searchEntry(model: CatalogueModel): CatalogueSearchEntry {
  const slug = wordsOf(model.id.slice(model.id.lastIndexOf("/") + 1));
  return {
    modelId: model.id,
    // In one piece too, because people write gpt4o.
    title: [...wordsOf(model.name), ...slug, slug.join("")].join(" "),
    origin: wordsOf(
      [model.id, model.provider, model.ownedBy, ...providersOf(model)].join(" "),
    ).join(" "),
    description: wordsOf(model.description).join(" "),
  };
}

/** What a query has beyond these is not looked for, so that no query is dear. */
const MAX_QUERY_CHARACTERS = 1_000;
const MAX_QUERY_WORDS = 16;
/** Longer runs of letters are cut into several words. */
const WORD = /[\p{L}\p{M}\p{N}]{1,64}/gu;

/**
 * The words of a text in lower case. Models and queries are split by the same rule, and a word has
 * nothing in it that a query language could take for an operator.
 */
export function wordsOf(text: string): string[] {
  return text.normalize("NFKC").toLowerCase().match(WORD) ?? [];
}

/** The terms of a query, each the words that stand between two spaces: `gpt-4.1 mini` has two terms. */
export function termsOf(query: string): string[][] {
  const terms = new Map<string, string[]>();
  let wordsLeft = MAX_QUERY_WORDS;
  for (const text of query.slice(0, MAX_QUERY_CHARACTERS).split(/\s+/)) {
    const words = wordsOf(text).slice(0, wordsLeft);
    const term = words.join(" ");
    if (words.length === 0 || terms.has(term)) continue;
    terms.set(term, words);
    wordsLeft -= words.length;
  }
  return [...terms.values()];
}
