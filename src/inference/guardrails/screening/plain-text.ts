/**
 * A text as a reader sees it: without invisible characters, and with ordinary letters and digits in place of
 * styled ones.
 */
export interface PlainText {
  readonly text: string;
  /** Returns the span of the original text for a span of the plain text. */
  originalSpan(start: number, end: number): { readonly start: number; readonly end: number };
  /**
   * Returns the start of the original text for a position. Returns the end of the original text for the end
   * of the plain text.
   */
  originalStart(position: number): number;
}

/**
 * Invisible characters: Unicode's default-ignorable characters, direction controls, other format characters.
 */
const INVISIBLE = /[\p{Default_Ignorable_Code_Point}\p{Cf}\ufff9-\ufffb]/u;
const INVISIBLES = new RegExp(INVISIBLE, "gu");
/**
 * Strokes and dots through and around letters. They mean nothing in most scripts unless NFKC combines them
 * with a letter.
 */
const GENERIC_MARK = /[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]/;
const GENERIC_MARKS = new RegExp(GENERIC_MARK, "g");
/** Characters that combine with the character before them. */
const EXTENDS = /[\p{M}\u1160-\u11ff\uff9e\uff9f]/u;
const ASCII = /^[\0-\x7f]*$/;
/**
 * The first letters of styled alphabets that Unicode does not decompose: letters in dark circles and squares,
 * and regional indicators.
 */
const STYLED_ALPHABETS = [0x1f150, 0x1f170, 0x1f1e6];
const ALPHABET_LETTERS = 26;
const LETTER_A = 0x41;
/** Hyphens that do not break a line, or only look like one. */
const HYPHEN = /[\u2010\u2011]/;
/** Characters that are not plain although NFKC does not change them. */
const SPECIAL = new RegExp(
  `${INVISIBLE.source}|${GENERIC_MARK.source}|${HYPHEN.source}|[\u{1f150}-\u{1f189}\u{1f1e6}-\u{1f1ff}]`,
  "u",
);
/** The maximum length of a cluster. Ordering the marks of a longer cluster would take quadratic time. */
const MAX_CLUSTER = 32;
/**
 * The maximum growth of a cluster. Characters that mean a sentence are not decomposed, because the text
 * would become many times longer.
 */
const MAX_GROWTH = 4;

/**
 * Returns the plain form of a text, in linear time. Returns undefined if the text is already plain.
 * Characters are combined (NFKC) with the marks that follow them, even if invisible characters are between
 * them.
 */
export function plainText(original: string): PlainText | undefined {
  if (ASCII.test(original)) return undefined;
  if (!SPECIAL.test(original) && original.normalize("NFKC") === original) return undefined;
  const builder = new PlainBuilder();
  for (let at = 0; at < original.length; ) {
    const code = original.codePointAt(at)!;
    const length = code > 0xffff ? 2 : 1;
    builder.add(code, at, at + length);
    at += length;
  }
  const text = builder.end();
  if (text === original) return undefined;
  const { starts, ends } = builder;
  return {
    text,
    originalStart: (position) => (position >= text.length ? original.length : starts[position]!),
    originalSpan: (start, end) => ({ start: starts[start]!, end: ends[end - 1]! }),
  };
}

/** Returns a text without invisible characters. */
export function visibleText(text: string): string {
  return ASCII.test(text) ? text : text.replace(INVISIBLES, "");
}

class PlainBuilder {
  readonly starts: number[] = [];
  readonly ends: number[] = [];
  readonly #parts: string[] = [];
  #cluster = "";
  #clusterStart = 0;
  #clusterEnd = 0;

  add(code: number, start: number, end: number): void {
    if (code < 0x80) {
      this.#finish();
      this.#begin(String.fromCharCode(code), start, end);
      return;
    }
    const character = String.fromCodePoint(code);
    if (INVISIBLE.test(character)) return;
    const extended = this.#cluster !== "" && this.#cluster.length < MAX_CLUSTER;
    if (extended && EXTENDS.test(character)) {
      this.#cluster += character;
      this.#clusterEnd = end;
      return;
    }
    this.#finish();
    this.#begin(character, start, end);
  }

  end(): string {
    this.#finish();
    return this.#parts.join("");
  }

  #begin(cluster: string, start: number, end: number): void {
    this.#cluster = cluster;
    this.#clusterStart = start;
    this.#clusterEnd = end;
  }

  #finish(): void {
    const cluster = this.#cluster;
    if (cluster === "") return;
    this.#cluster = "";
    const plain = plainCluster(cluster);
    this.#parts.push(plain);
    for (let at = 0; at < plain.length; at++) {
      this.starts.push(this.#clusterStart);
      this.ends.push(this.#clusterEnd);
    }
  }
}

function plainCluster(cluster: string): string {
  const code = cluster.codePointAt(0)!;
  if (cluster.length === 1 && code < 0x80) return cluster;
  for (const first of STYLED_ALPHABETS) {
    if (code < first || code >= first + ALPHABET_LETTERS) continue;
    return String.fromCharCode(LETTER_A + code - first);
  }
  if (HYPHEN.test(cluster)) return "-";
  const normal = cluster.normalize("NFKC").replace(INVISIBLES, "");
  if (normal.length > cluster.length * MAX_GROWTH) return cluster;
  return GENERIC_MARK.test(normal) ? normal.replace(GENERIC_MARKS, "") : normal;
}
