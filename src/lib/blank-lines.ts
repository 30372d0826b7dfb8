const SPACE = 0x20;
const TAB = 0x09;
const CARRIAGE_RETURN = 0x0d;
const LINE_FEED = 0x0a;

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
