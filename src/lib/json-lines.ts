/** A line of a JSONL text as it came; it may hold nothing but white space. */
export interface RawLine {
  /** Counted from 1, empty lines included. */
  readonly line: number;
  readonly bytes: Uint8Array;
}

/** A line is not JSON, not UTF-8, or too long. */
export class JsonLineError extends Error {
  readonly line: number;

  constructor(line: number, reason: string) {
    super(`line ${line} ${reason}`);
    this.name = "JsonLineError";
    this.line = line;
  }
}

const LINE_FEED = 0x0a;
/** Longer lines are parsed in a work thread where they may be hostile: the event loop would be held. */
export const MAX_QUICK_LINE_BYTES = 65_536;

/**
 * Reads the lines of a JSONL text (jsonlines.org) in order. Holds one line and one piece of the text at most.
 * Throws JsonLineError for a line that is too long; cancels the text if it is not read to its end.
 */
export function readLines(
  text: AsyncIterable<Uint8Array>,
  maxLineBytes: number,
): AsyncGenerator<RawLine> {
  return linesOf(text, maxLineBytes, (pieces, line) => {
    return { line, bytes: pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces) };
  });
}

/** The same in the pieces in which lines came: joining a long one would hold the event loop. */
export function readPiecedLines(
  text: AsyncIterable<Uint8Array>,
  maxLineBytes: number,
): AsyncGenerator<readonly Uint8Array[]> {
  return linesOf(text, maxLineBytes, (pieces) => pieces);
}

async function* linesOf<Line>(
  text: AsyncIterable<Uint8Array>,
  maxLineBytes: number,
  made: (pieces: readonly Uint8Array[], line: number) => Line,
): AsyncGenerator<Line> {
  let pieces: Uint8Array[] = [];
  let heldBytes = 0;
  let line = 1;
  const take = (last: Uint8Array): Line => {
    const byteLength = heldBytes + last.length;
    if (byteLength > maxLineBytes) throw tooLong(line, maxLineBytes);
    pieces.push(last);
    const taken = made(pieces, line);
    pieces = [];
    heldBytes = 0;
    return taken;
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
      yield take(piece.subarray(start, end));
      line += 1;
      start = end + 1;
    }
    const rest = piece.subarray(start);
    heldBytes += rest.length;
    if (heldBytes > maxLineBytes) throw tooLong(line, maxLineBytes);
    if (rest.length > 0) pieces.push(rest);
  }
  if (heldBytes > 0) yield take(new Uint8Array());
}

/**
 * The value of a line; undefined for a blank one.
 *
 * @param decode throws where the line is not valid UTF-8
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
 * Counts the complete blank lines in a piece of a JSONL text from `start`, the beginning of a line, and finds
 * their end. It compares bytes, because a hostile file can hold millions of blank lines in each piece.
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

/** Work on the event loop in small steps lets others go on after as long. */
const MAX_HOLD_MS = 10;

/**
 * Returns what a loop of small steps awaits before each of them, because data that has arrived already comes
 * without a turn of the event loop: it resolves at once, or after such a turn where 10 ms have passed.
 */
export function loopPauses(): () => Promise<void> {
  let lastMs = performance.now();
  return async () => {
    if (performance.now() - lastMs < MAX_HOLD_MS) return;
    await new Promise<void>((resolve) => void setImmediate(resolve));
    lastMs = performance.now();
  };
}
