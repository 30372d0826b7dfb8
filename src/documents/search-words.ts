const NO_WORD = /[^\p{L}\p{N}\p{M}]+/gu;
/** Accents of Latin, Greek and Cyrillic letters; marks of other scripts are letters of their own. */
const ACCENTS = /[\u0300-\u036f]/g;
/** Scripts that put no space between words. */
const UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]{2,}/gu;
const MAX_WORD_CHARACTERS = 64;
/** Marks beyond the thirtieth on one letter, which no language has: to order them takes quadratic time (UAX #15, D3). */
const EXCESS_MARKS = /(?<=\p{M}{30})\p{M}+/gu;

let segmenter: Intl.Segmenter | undefined;

/**
 * The words of a text with single spaces between them, as full text search takes them: without punctuation and
 * accents, and cut where their script puts no spaces. Of a text and of the questions about it alike.
 */
export function searchWords(text: string): string {
  return text
    .replace(EXCESS_MARKS, "")
    .normalize("NFKD")
    .replace(ACCENTS, "")
    .normalize("NFC")
    .replace(UNSPACED, (run) => ` ${[...segmentsOf(run)].join(" ")} `)
    .replace(NO_WORD, " ")
    .split(" ")
    .map((word) => word.slice(0, MAX_WORD_CHARACTERS))
    .filter((word) => word !== "")
    .join(" ")
    .toWellFormed();
}

function* segmentsOf(run: string): Generator<string> {
  segmenter ??= new Intl.Segmenter("und", { granularity: "word" });
  for (const { segment } of segmenter.segment(run)) yield segment;
}
