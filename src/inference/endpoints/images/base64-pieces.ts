import { yieldToEventLoop } from "../../../lib/yield-to-event-loop.ts";

/**
 * Characters of a piece. A multiple of 4, whose bytes are a multiple of 3, so that each piece is complete
 * without padding. A piece takes a few milliseconds.
 */
const PIECE_CHARACTERS = 1_048_576;
const PIECE_BYTES = (PIECE_CHARACTERS / 4) * 3;
const ALPHABET = /^[A-Za-z0-9+/]*$/;

/**
 * Returns the decoded length of a text, or undefined if the text has no base64 length with padding (RFC 4648,
 * section 4) or decodes to more than `maxBytes`.
 */
function lengthOfBase64(text: string, maxBytes: number): number | undefined {
  if (text.length === 0 || text.length % 4 !== 0) return undefined;
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const bytes = (text.length / 4) * 3 - padding;
  return bytes <= maxBytes ? bytes : undefined;
}

/**
 * Returns the bytes of a long base64 text. Returns undefined if the text is not base64 or has more than
 * `maxBytes`. Yields to the event loop between pieces.
 */
export async function bytesOfBase64(text: string, maxBytes: number): Promise<Buffer | undefined> {
  const length = lengthOfBase64(text, maxBytes);
  if (length === undefined) return undefined;
  const bytes = Buffer.allocUnsafe(length);
  for (let at = 0; at < text.length; at += PIECE_CHARACTERS) {
    if (at > 0) await yieldToEventLoop();
    const piece = text.slice(at, at + PIECE_CHARACTERS);
    if (!isAlphabet(piece, at + PIECE_CHARACTERS >= text.length)) return undefined;
    bytes.write(piece, (at / 4) * 3, "base64");
  }
  return bytes;
}

/** Returns true if the text is base64 of at most `maxBytes`. Does not yield to the event loop. */
export function isBase64(text: string, maxBytes: number): boolean {
  return lengthOfBase64(text, maxBytes) !== undefined && isAlphabet(text, true);
}

function isAlphabet(piece: string, isLast: boolean): boolean {
  return ALPHABET.test(isLast ? piece.replace(/={1,2}$/, "") : piece);
}

export function base64Length(bytes: number): number {
  return Math.ceil(bytes / 3) * 4;
}

/** Writes the bytes as base64 into a buffer, starting at a position. Yields to the event loop between pieces. */
export async function writeBase64(bytes: Buffer, into: Buffer, position: number): Promise<void> {
  let to = position;
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
    if (at > 0) await yieldToEventLoop();
    const piece = bytes.subarray(at, at + PIECE_BYTES);
    to += into.write(piece.toString("base64"), to, "latin1");
  }
}
