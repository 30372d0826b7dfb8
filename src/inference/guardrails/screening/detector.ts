/** Where something was found: `end` is behind its last character. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

export interface Found extends Span {
  /** What stands in its place: "[EMAIL]". */
  readonly label: string;
}

/** Finds one kind of thing in texts. */
export interface Detector {
  /** How long a character takes, in times of a search for personal data. */
  readonly cost: number;
  /** All that begin at `from` or behind, in any order. */
  find(text: string, from: number): Found[];
  /** Whether anything is found in a whole text, where that takes less time than to find where. */
  isIn?(text: string): boolean;
  /**
   * From where a text that may go on has to be held back: whatever follows, everything that begins before is found
   * already, and as long as it will be.
   */
  heldFrom(text: string): number;
}

/** Of things that are never longer than so many characters. */
export function heldByLength(longest: number): Detector["heldFrom"] {
  // One more, for what must not follow.
  return (text) => Math.max(0, text.length - longest - 1);
}

export function allMatches(expression: RegExp, text: string, from: number): RegExpExecArray[] {
  const found: RegExpExecArray[] = [];
  expression.lastIndex = from;
  for (let match = expression.exec(text); match !== null; match = expression.exec(text)) {
    found.push(match);
    // What is none may hide one that begins within it.
    expression.lastIndex = match.index + 1;
  }
  return found;
}
