const SPACE = 0x20;
const TAB = 0x09;
const CARRIAGE_RETURN = 0x0d;
const LINE_FEED = 0x0a;

/**
 * The blank lines of a JSONL text that stand whole in a piece of it from `start` on, where a line begins:
 * where they end, and how many they are. A file may hold nothing else, millions in each piece, so they are
 * told by their bytes.
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
