const NO_WORD = /[^\p{L}\p{N}\p{M}]+/gu;
/** Accents of Latin, Greek and Cyrillic letters. Marks of other scripts are separate letters. */
const ACCENTS = /[\u0300-\u036f]/g;
/** Scripts without spaces between words. */
const UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]{2,}/gu;
const MAX_WORD_CHARACTERS = 64;
/**
 * Marks after the thirtieth on one letter, which no language has. Ordering them takes quadratic time (UAX #15,
 * D3).
 */
const EXCESS_MARKS = /(?<=\p{M}{30})\p{M}+/gu;

let segmenter: Intl.Segmenter | undefined;

/**
 * Returns the words of a text for full-text search, separated by single spaces: without punctuation and accents,
 * and segmented if the script has no spaces. Texts and search queries are both converted with it.
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
