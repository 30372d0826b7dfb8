/** What can change the depth, or hide what would. */
const MARKS = /["\\{}[\]]/g;

/**
 * Tells whether an object or array that comes in pieces has ended, in time linear in its length, however often it
 * is asked. Of JSON that is broken it may tell an end, behind which nothing can mend it.
 */
export class JsonEnd {
  #depth = 0;
  #hasBegun = false;
  #isInString = false;
  /** The piece before ended with the sign that takes the next one's meaning away. */
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
