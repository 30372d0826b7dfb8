/**
 * Splits a stream of server-sent events into the data of each event (WHATWG HTML, 9.2.6). It works on bytes as
 * latin1 characters. A UTF-8 character split between two pieces therefore survives, and a relay can send
 * identical bytes. docs/explanation/built-by-hand.md says why the gateway does not use eventsource-parser.
 */
export class EventSplitter {
  readonly #maxEventBytes: number;
  /** The incomplete event. Only new text is searched for its end. */
  #pieces: string[] = [];
  #piecesLength = 0;
  /** A possible start of a byte order mark. */
  #heldBack = "";
  #isFirst = true;
  /** True if the last piece ended with CR: an LF at the start of the next piece belongs to the same line end. */
  #endedInReturn = false;

  constructor(maxEventBytes: number) {
    this.#maxEventBytes = maxEventBytes;
  }

  /**
   * Calls `onData` with the data of each complete event. Before each of these calls `takeRun`, if given, can
   * consume several complete events from a position of the text and returns the position after them. Throws
   * RangeError if an event is too large.
   */
  push(
    bytes: Uint8Array,
    onData: (data: string) => void,
    takeRun?: (text: string, start: number) => number,
  ): void {
    let text = this.#normalise(latin1(bytes));
    if (this.#pieces.length > 0) {
      if (!this.#bringsEnd(text)) {
        this.#keep(text);
        return;
      }
      text = this.#takePieces() + text;
    }
    let start = 0;
    for (;;) {
      if (takeRun !== undefined) start = takeRun(text, start);
      const end = text.indexOf("\n\n", start);
      if (end < 0) break;
      emit(text, start, end, onData);
      start = end + 2;
    }
    if (start < text.length) this.#keep(text.slice(start));
  }

  /** Ends the stream. A last event without its blank line counts too, because some servers omit that line. */
  end(onData: (data: string) => void): void {
    const rest = this.#takePieces().replace(/\n+$/, "");
    this.#heldBack = "";
    if (rest !== "") emit(rest, 0, rest.length, onData);
  }

  /** Returns the text without the byte order mark and with LF for all line ends. */
  #normalise(received: string): string {
    let text = this.#heldBack + received;
    this.#heldBack = "";
    if (this.#isFirst) {
      if (text.length < BYTE_ORDER_MARK.length && BYTE_ORDER_MARK.startsWith(text)) {
        this.#heldBack = text;
        return "";
      }
      this.#isFirst = false;
      if (text.startsWith(BYTE_ORDER_MARK)) text = text.slice(BYTE_ORDER_MARK.length);
    }
    if (this.#endedInReturn && text !== "") {
      this.#endedInReturn = false;
      if (text.startsWith("\n")) text = text.slice(1);
    }
    if (!text.includes("\r")) return text;
    this.#endedInReturn = text.endsWith("\r");
    return text.replace(/\r\n?/g, "\n");
  }

  #bringsEnd(text: string): boolean {
    return text.includes("\n\n") || (text.startsWith("\n") && this.#pieces.at(-1)!.endsWith("\n"));
  }

  #keep(text: string): void {
    this.#piecesLength += text.length;
    if (this.#piecesLength > this.#maxEventBytes) throw new RangeError("an event is too large");
    const last = this.#pieces.at(-1);
    if (last !== undefined && last.length < SMALL_PIECE)
      this.#pieces[this.#pieces.length - 1] += text;
    else this.#pieces.push(text);
  }

  #takePieces(): string {
    const text = this.#pieces.join("");
    this.#pieces = [];
    this.#piecesLength = 0;
    return text;
  }
}

const BYTE_ORDER_MARK = "\xef\xbb\xbf";
/** Smaller pieces are joined, so that a stream of single bytes does not become millions of strings. */
const SMALL_PIECE = 4_096;

/**
 * Passes on the data of one event. Most events have one line of data, and some have a line with their name before
 * it, so only data is copied.
 */
function emit(text: string, start: number, end: number, onData: (data: string) => void): void {
  let data: string | undefined;
  for (let at = start; at < end; ) {
    const nextBreak = text.indexOf("\n", at);
    const lineEnd = nextBreak < 0 || nextBreak > end ? end : nextBreak;
    if (text.startsWith("data", at)) {
      const line = lineData(text, at + 4, lineEnd);
      if (line !== undefined) data = data === undefined ? line : `${data}\n${line}`;
    }
    at = lineEnd + 1;
  }
  if (data !== undefined) onData(data);
}

/**
 * Returns the text after `data` in its line, or undefined if `data` is only the beginning of the field's name.
 */
function lineData(text: string, at: number, lineEnd: number): string | undefined {
  if (at === lineEnd) return "";
  if (text[at] !== ":") return undefined;
  return text.slice(text[at + 1] === " " ? at + 2 : at + 1, lineEnd);
}

export function latin1(bytes: Uint8Array): string {
  const buffer =
    bytes instanceof Buffer ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return buffer.toString("latin1");
}

const BEYOND_ASCII = /[\x80-\xff]/;

/** Decodes UTF-8 bytes that are given as latin1 characters. */
export function textOfLatin1(bytes: string): string {
  return BEYOND_ASCII.test(bytes) ? Buffer.from(bytes, "latin1").toString("utf8") : bytes;
}

/** Encodes a text as UTF-8 bytes, returned as latin1 characters. */
export function latin1OfText(text: string): string {
  return NOT_ASCII.test(text) ? Buffer.from(text, "utf8").toString("latin1") : text;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: ASCII begins with them
const NOT_ASCII = /[^\x00-\x7f]/;
