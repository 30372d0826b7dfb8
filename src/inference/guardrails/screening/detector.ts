/** The position of a match. `end` is the position after its last character. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** A match and its replacement. */
export interface LabelledSpan extends Span {
  /** The replacement text: "[EMAIL]". */
  readonly label: string;
}

/** Detects one kind of data in texts. */
export interface Detector {
  /** The time per character, as a multiple of a search for personal data. */
  readonly cost: number;
  /** Returns all matches that begin at `from` or later, in any order. */
  find(text: string, from: number): LabelledSpan[];
  /** Returns true if a whole text has a match. Defined if that is faster than finding its position. */
  isIn?(text: string): boolean;
  /**
   * Returns the position from which an incomplete text must be withheld. All matches that begin before it are
   * already found with their final length, whatever text follows.
   */
  heldFrom(text: string): number;
}

/** Returns `heldFrom` for matches of limited length. */
export function heldByLength(longest: number): Detector["heldFrom"] {
  // One more character, because some matches depend on the character that follows.
  return (text) => Math.max(0, text.length - longest - 1);
}

/** Returns all matches of a global expression that begin at `from` or later, including overlapping ones. */
export function allMatches(expression: RegExp, text: string, from: number): RegExpExecArray[] {
  const all: RegExpExecArray[] = [];
  expression.lastIndex = from;
  for (let match = expression.exec(text); match !== null; match = expression.exec(text)) {
    all.push(match);
    // A rejected match can hide a match that begins within it.
    expression.lastIndex = match.index + 1;
  }
  return all;
}
