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
