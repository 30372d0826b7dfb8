import { blankLines } from "./blank-lines.ts";

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

const LINE_FEED = 10;
/** Longer lines are parsed in a work thread where they may be hostile: the event loop would be held. */
export const MAX_QUICK_LINE_BYTES = 65_536;

/**
 * Reads the lines of a JSONL text (jsonlines.org) in order. Holds one line and one piece of the text at most.
 * Throws JsonLineError for a line that is too long; cancels the text if it is not read to its end.
 */
export async function* readLines(
  text: ReadableStream<Uint8Array>,
  maxLineBytes: number,
): AsyncGenerator<RawLine> {
  let pieces: Uint8Array[] = [];
  let heldBytes = 0;
  let line = 1;
  const take = (last: Uint8Array): RawLine => {
    const byteLength = heldBytes + last.length;
    if (byteLength > maxLineBytes) throw tooLong(line, maxLineBytes);
    const bytes = pieces.length === 0 ? last : Buffer.concat([...pieces, last]);
    pieces = [];
    heldBytes = 0;
    return { line, bytes };
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
