/** Why a document has no text that can be indexed: codes of a vector store file's `last_error`. */
export class DocumentFault extends Error {
  readonly code: "unsupported_file" | "invalid_file";

  constructor(code: DocumentFault["code"], message: string) {
    super(message);
    this.name = "DocumentFault";
    this.code = code;
  }
}

/** UTF-16 code units of text that one file may have, about 4 million tokens. */
export const MAX_TEXT_CHARACTERS = 16_777_216;

/** A run of blanks is tried from its first one alone, so that one which ends no line takes linear time. */
const SPACE_AT_END = /(?<![^\S\n])[^\S\n]+\n/g;
const EMPTY_LINES = /\n{3,}/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: no text of the database holds a NUL, and no reader wants the others
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;

/** Takes the text of a document as it is read, up to a bound. */
export class TextSink {
  readonly #parts: string[] = [];
  #length = 0;

  /** Throws DocumentFault where it becomes too much. */
  write(text: string): void {
    this.#length += text.length;
    if (this.#length > MAX_TEXT_CHARACTERS) {
      const most = `${MAX_TEXT_CHARACTERS / 1_048_576} million characters`;
      throw new DocumentFault("invalid_file", `The file holds more than ${most} of text.`);
    }
    this.#parts.push(text);
  }

  /** Well-formed, without control characters, with at most one empty line in a row. */
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
