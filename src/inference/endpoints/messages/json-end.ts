/** Characters that change the depth, or that hide such characters. */
const MARKS = /["\\{}[\]]/g;

/**
 * Detects the end of a JSON object or array that arrives in pieces. Its total time is linear in the length,
 * however often `isReached` is read. For broken JSON it can report an end, but such JSON cannot become valid
 * anyway.
 */
export class JsonEnd {
  #depth = 0;
  #hasBegun = false;
  #isInString = false;
  /** True if the previous piece ended with a backslash, which escapes the next character. */
  #isEscaped = false;

  get isReached(): boolean {
    return this.#hasBegun && this.#depth <= 0 && !this.#isInString;
  }

  take(piece: string): void {
    if (piece === "") return;
    MARKS.lastIndex = this.#isEscaped ? 1 : 0;
    this.#isEscaped = false;
    for (let match = MARKS.exec(piece); match !== null; match = MARKS.exec(piece)) {
      this.#takeMark(match[0], match.index === piece.length - 1);
    }
  }

  #takeMark(mark: string, isLast: boolean): void {
    if (mark === "\\") {
      this.#isEscaped = isLast;
      MARKS.lastIndex++;
    } else if (mark === '"') this.#isInString = !this.#isInString;
    else if (this.#isInString) return;
    else if (mark === "{" || mark === "[") {
      this.#hasBegun = true;
      this.#depth++;
    } else this.#depth--;
  }
}
