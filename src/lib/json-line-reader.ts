import { blankLines } from "./blank-lines.ts";

/** A line of a JSONL text that is not blank. */
export interface JsonLine {
  /** Counted from 1, empty lines included. */
  readonly line: number;
  readonly bytes: number;
  readonly value: unknown;
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

/**
 * Reads the lines of a JSONL text (jsonlines.org) in order and skips blank ones. Holds one line and one piece
 * of the text at most. Throws JsonLineError; cancels the text if it is not read to its end.
 */
export async function* readJsonLines(
  text: ReadableStream<Uint8Array>,
  maxLineBytes: number,
): AsyncGenerator<JsonLine> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let pieces: Uint8Array[] = [];
  let heldBytes = 0;
  let line = 1;
  const take = (last: Uint8Array): JsonLine | undefined => {
    const bytes = heldBytes + last.length;
    if (bytes > maxLineBytes) throw new JsonLineError(line, `has more than ${maxLineBytes} bytes`);
    const whole = pieces.length === 0 ? last : Buffer.concat([...pieces, last]);
    pieces = [];
    heldBytes = 0;
    return parsed(decoder, whole, line);
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
      const read = take(piece.subarray(start, end));
      if (read !== undefined) yield read;
      line += 1;
      start = end + 1;
    }
    const rest = piece.subarray(start);
    heldBytes += rest.length;
    if (heldBytes > maxLineBytes) {
      throw new JsonLineError(line, `has more than ${maxLineBytes} bytes`);
    }
    if (rest.length > 0) pieces.push(rest);
  }
  const read = take(new Uint8Array());
  if (read !== undefined) yield read;
}

function parsed(decoder: TextDecoder, bytes: Uint8Array, line: number): JsonLine | undefined {
  let text: string;
  try {
    text = decoder.decode(bytes).trim();
  } catch {
    throw new JsonLineError(line, "is not valid UTF-8");
  }
  if (text === "") return undefined;
  try {
    return { line, bytes: bytes.length, value: JSON.parse(text) };
  } catch {
    throw new JsonLineError(line, "is not valid JSON");
  }
}
