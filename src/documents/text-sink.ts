/** The reason that a document has no text to index. The codes are values of a vector store file's `last_error`. */
export class DocumentFault extends Error {
  readonly code: "unsupported_file" | "invalid_file";

  constructor(code: DocumentFault["code"], message: string) {
    super(message);
    this.name = "DocumentFault";
    this.code = code;
  }
}

/** Most text of one file in UTF-16 code units, about 4 million tokens. */
export const MAX_TEXT_CHARACTERS = 16_777_216;

/**
 * Blanks at the end of a line. The match begins only at the first blank of a run, so that a long run inside a
 * line takes linear time.
 */
const SPACE_AT_END = /(?<![^\S\n])[^\S\n]+\n/g;
const EMPTY_LINES = /\n{3,}/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: no text of the database holds a NUL, and no reader wants the others
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;

/** Collects the text of a document up to a limit. */
export class TextSink {
  readonly #parts: string[] = [];
  #length = 0;

  /** Adds text. Throws DocumentFault if the text exceeds the limit. */
  write(text: string): void {
    this.#length += text.length;
    if (this.#length > MAX_TEXT_CHARACTERS) {
      const most = `${MAX_TEXT_CHARACTERS / 1_048_576} million characters`;
      throw new DocumentFault("invalid_file", `The file holds more than ${most} of text.`);
    }
    this.#parts.push(text);
  }

  /** The collected text: well-formed, without control characters, and with at most one empty line in a row. */
  get text(): string {
    return this.#parts
      .join("")
      .toWellFormed()
      .replace(/\r\n?/g, "\n")
      .replace(CONTROL, " ")
      .replace(SPACE_AT_END, "\n")
      .replace(EMPTY_LINES, "\n\n")
      .trim();
  }
}
