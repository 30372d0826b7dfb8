import { GLYPH_COLUMNS, GLYPH_ROWS, glyphOf } from "./font.ts";

/** Red, green, blue and opacity, each from 0 to 255. */
export type Colour = readonly [number, number, number, number];

/** A picture with a palette. Each pixel is one byte: the colour's index in the palette. */
export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly pixels: Uint8Array;
  readonly palette: readonly Colour[];
}

/** The texts of a picture: a main text in the largest letters that fit, and a line at the foot. */
export interface PictureText {
  readonly text: string;
  readonly foot: string;
}

/** Indexes in the palette of every picture. */
export const GROUND = 0;
export const INK = 1;
export const FRAME = 2;

const MAX_SCALE = 16;
/** Size of a letter, including the gaps to the next letter and line. */
const LETTER_COLUMNS = GLYPH_COLUMNS + 1;
const LINE_ROWS = GLYPH_ROWS + 2;

interface Layout {
  readonly scale: number;
  readonly lines: readonly string[];
}

/** Draws a picture. Takes some milliseconds for four million pixels. */
export function drawPicture(
  size: { readonly width: number; readonly height: number },
  palette: readonly Colour[],
  { text, foot }: PictureText,
): Picture {
  const { width, height } = size;
  const picture: Picture = { width, height, palette, pixels: new Uint8Array(width * height) };
  const margin = Math.floor(Math.min(width, height) / 32) + 1;
  fill(picture, { left: 0, top: 0, width, height: margin }, FRAME);
  fill(picture, { left: 0, top: height - margin, width, height: margin }, FRAME);
  const room = { width: width - 4 * margin, height: height - 4 * margin };
  const footLayout = layOut(foot, { ...room, height: Math.floor(room.height / 8) });
  const footHeight = heightOf(footLayout);
  const layout = layOut(text, { ...room, height: room.height - footHeight });
  const left = 2 * margin;
  write(picture, layout, left, 2 * margin);
  write(picture, footLayout, left, height - 2 * margin - footHeight);
  return picture;
}

/** Returns a partial picture: its upper part, and the rest in the colour of the frame. */
export function upperPart(picture: Picture, share: number): Picture {
  const pixels = picture.pixels.slice();
  pixels.fill(FRAME, picture.width * Math.floor(picture.height * share));
  return { ...picture, pixels };
}

/**
 * Lays out a text in the largest letters in which all lines fit. In the smallest letters it omits lines that
 * do not fit.
 */
function layOut(text: string, room: { readonly width: number; readonly height: number }): Layout {
  for (let scale = MAX_SCALE; scale > 0; scale--) {
    const columns = Math.floor(room.width / (LETTER_COLUMNS * scale));
    const rows = Math.floor(room.height / (LINE_ROWS * scale));
    if (scale > 1 && (columns === 0 || text.length > columns * rows)) continue;
    const lines = wrap(text, columns, rows + 1);
    const breaksWords = scale > 2 && longestWord(text) > columns;
    if (scale === 1) return { scale, lines: lines.slice(0, rows) };
    if (lines.length <= rows && !breaksWords) return { scale, lines };
  }
  return { scale: 1, lines: [] };
}

function heightOf({ scale, lines }: Layout): number {
  return lines.length * LINE_ROWS * scale;
}

function longestWord(text: string): number {
  return text.split(/\s+/u).reduce((longest, word) => Math.max(longest, word.length), 0);
}

/** Wraps a text into lines of at most `columns` characters, between words if possible. */
function wrap(text: string, columns: number, maxLines: number): string[] {
  const lines: string[] = [];
  if (columns < 1) return lines;
  for (const paragraph of text.split("\n")) {
    let line: string[] = [];
    for (const word of paragraph.split(/\s+/u)) {
      const letters = Array.from(word.normalize("NFC"));
      if (line.length > 0 && line.length + 1 + letters.length > columns) {
        lines.push(line.join(""));
        line = [];
      }
      if (line.length > 0) line.push(" ");
      line.push(...letters.splice(0, columns - line.length));
      while (letters.length > 0 && lines.length < maxLines) {
        lines.push(line.join(""));
        line = letters.splice(0, columns);
      }
      if (lines.length >= maxLines) return lines;
    }
    lines.push(line.join(""));
  }
  return lines;
}

function write(picture: Picture, { scale, lines }: Layout, left: number, top: number): void {
  for (const [row, line] of lines.entries()) {
    let x = left;
    for (const letter of line) {
      writeLetter(picture, letter, { left: x, top: top + row * LINE_ROWS * scale }, scale);
      x += LETTER_COLUMNS * scale;
    }
  }
}

function writeLetter(
  picture: Picture,
  letter: string,
  { left, top }: { readonly left: number; readonly top: number },
  scale: number,
): void {
  for (const [column, bits] of glyphOf(letter).entries()) {
    for (let row = 0; row < GLYPH_ROWS; row++) {
      if ((bits & (1 << row)) === 0) continue;
      const position = { left: left + column * scale, top: top + row * scale };
      fill(picture, { ...position, width: scale, height: scale }, INK);
    }
  }
}

interface Rectangle {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

/** Fills the part of a rectangle that lies inside the picture. */
function fill(picture: Picture, { left, top, width, height }: Rectangle, colour: number): void {
  const right = Math.min(left + width, picture.width);
  const bottom = Math.min(top + height, picture.height);
  for (let y = top; y < bottom; y++) {
    const row = y * picture.width;
    picture.pixels.fill(colour, row + left, row + right);
  }
}
