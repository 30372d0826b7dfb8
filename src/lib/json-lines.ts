/** An unparsed line of a JSONL text. It can be blank. */
export interface RawLine {
  /** Line number from 1; empty lines count too. */
  readonly line: number;
  readonly bytes: Uint8Array;
}

/** The error for a line that is not JSON, not UTF-8, or too long. */
export class JsonLineError extends Error {
  readonly line: number;

  constructor(line: number, reason: string) {
    super(`line ${line} ${reason}`);
    this.name = "JsonLineError";
    this.line = line;
  }
}

const LINE_FEED = 0x0a;
/** Untrusted lines above this length are parsed in a work thread, because they would block the event loop. */
export const MAX_QUICK_LINE_BYTES = 65_536;

/**
 * Reads the lines of a JSONL text (jsonlines.org) in order. Memory is limited to one line and one piece of the
 * text. Throws JsonLineError if a line is too long. Cancels the text if the caller does not read to its end.
 */
export function readLines(
  text: AsyncIterable<Uint8Array>,
  maxLineBytes: number,
): AsyncGenerator<RawLine> {
  return linesOf(text, maxLineBytes, (pieces, line) => {
    return { line, bytes: pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces) };
  });
}

/**
 * Reads lines like `readLines`, each as the pieces in which it arrived: joining a long line would block the event
 * loop.
 */
export function readPiecedLines(
  text: AsyncIterable<Uint8Array>,
  maxLineBytes: number,
): AsyncGenerator<readonly Uint8Array[]> {
  return linesOf(text, maxLineBytes, (pieces) => pieces);
}

async function* linesOf<Line>(
  text: AsyncIterable<Uint8Array>,
  maxLineBytes: number,
  build: (pieces: readonly Uint8Array[], line: number) => Line,
): AsyncGenerator<Line> {
  let pieces: Uint8Array[] = [];
  let heldBytes = 0;
  let line = 1;
  const finish = (last: Uint8Array): Line => {
    const byteLength = heldBytes + last.length;
    if (byteLength > maxLineBytes) throw tooLong(line, maxLineBytes);
    pieces.push(last);
    const complete = build(pieces, line);
    pieces = [];
    heldBytes = 0;
    return complete;
  };
  for await (const piece of text) {
    let start = 0;
    for (;;) {
      if (heldBytes === 0) {
        const blank = blankLines(piece, start);
        start = blank.end;
        line += blank.count;
      }
      const end = piece.indexOf(LINE_FEED, start);
      if (end === -1) break;
      yield finish(piece.subarray(start, end));
      line += 1;
      start = end + 1;
    }
    const rest = piece.subarray(start);
    heldBytes += rest.length;
    if (heldBytes > maxLineBytes) throw tooLong(line, maxLineBytes);
    if (rest.length > 0) pieces.push(rest);
  }
  if (heldBytes > 0) yield finish(new Uint8Array());
}

/**
 * Returns the value of a line, or undefined for a blank line.
 *
 * @param decode throws if the line is not valid UTF-8
 */
export function parseJsonLine(line: number, decode: () => string): unknown {
  let text: string;
  try {
    text = decode().trim();
  } catch {
    throw new JsonLineError(line, "is not valid UTF-8");
  }
  if (text === "") return undefined;
  try {
    return JSON.parse(text);
  } catch {
    throw new JsonLineError(line, "is not valid JSON");
  }
}

function tooLong(line: number, maxLineBytes: number): JsonLineError {
  return new JsonLineError(line, `has more than ${maxLineBytes} bytes`);
}

const SPACE = 0x20;
const TAB = 0x09;
const CARRIAGE_RETURN = 0x0d;

/**
 * Counts the complete blank lines of a piece of a JSONL text from `start`, which is the beginning of a line, and
 * finds their end. It compares bytes, because a hostile file can contain millions of blank lines in each piece.
 */
export function blankLines(
  piece: Uint8Array,
  start: number,
): { readonly end: number; readonly count: number } {
  let end = start;
  let count = 0;
  for (let at = start; at < piece.byteLength; at++) {
    const byte = piece[at];
    if (byte === LINE_FEED) {
      end = at + 1;
      count++;
    } else if (byte !== SPACE && byte !== TAB && byte !== CARRIAGE_RETURN) break;
  }
  return { end, count };
}

/** Time after which work on the event loop in small steps lets other work run. */
const MAX_HOLD_MS = 10;

/**
 * Returns a function that a loop of small steps awaits before each step. It resolves immediately, or after a turn
 * of the event loop if 10 ms have passed. Data that has already arrived would otherwise be read without such a
 * turn.
 */
export function loopPauses(): () => Promise<void> {
  let lastMs = performance.now();
  return async () => {
    if (performance.now() - lastMs < MAX_HOLD_MS) return;
    await new Promise<void>((resolve) => void setImmediate(resolve));
    lastMs = performance.now();
  };
}
