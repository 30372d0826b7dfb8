/** Dimensions stand near the beginning; only a JPEG may carry much in front of them, such as colour profiles. */
export const MAX_IMAGE_HEAD_BYTES = 1024 * 1024;

export interface ImageHeader {
  readonly contentType: string;
  /** Pixels. */
  readonly width: number;
  readonly height: number;
}

/** `unfinished`: more bytes are needed to tell. */
type ReadHeader = ImageHeader | "unfinished" | "not-an-image";

type Reader = (view: DataView) => { width: number; height: number } | undefined;

const FORMATS: readonly {
  readonly contentType: string;
  /** Of the first bytes; dots are any byte. */
  readonly magic: string;
  readonly read: Reader;
}[] = [
  { contentType: "image/png", magic: "\x89PNG\r\n\x1a\n....IHDR", read: readPng },
  { contentType: "image/jpeg", magic: "\xff\xd8\xff", read: readJpeg },
  { contentType: "image/webp", magic: "RIFF....WEBPVP8", read: readWebp },
];

/** Format and dimensions of an image by its first bytes. Never throws, whatever the bytes are. */
export function readImageHeader(head: Uint8Array): ReadHeader {
  let mayBecome = false;
  for (const { contentType, magic, read } of FORMATS) {
    const seen = Math.min(magic.length, head.byteLength);
    let matches = true;
    for (let at = 0; at < seen; at++) {
      if (magic[at] !== "." && magic.charCodeAt(at) !== head[at]) matches = false;
    }
    if (!matches) continue;
    if (head.byteLength < magic.length) {
      mayBecome = true;
      continue;
    }
    const view = new DataView(head.buffer, head.byteOffset, head.byteLength);
    const size = read(view);
    return size === undefined ? "unfinished" : { contentType, ...size };
  }
  return mayBecome ? "unfinished" : "not-an-image";
}

/** What an image is, by its bytes. Sides in pixels, of formats that are read here. */
export interface ImageKind {
  readonly contentType: string;
  readonly width?: number;
  readonly height?: number;
}

/** The kind of a whole image, of these or a few further formats; undefined for other bytes. Never throws. */
export function kindOfImage(bytes: Uint8Array): ImageKind | undefined {
  const header = readImageHeader(bytes.subarray(0, MAX_IMAGE_HEAD_BYTES));
  if (typeof header !== "string") {
    return header.width > 0 && header.height > 0 ? header : undefined;
  }
  // Only what stands in front of its dimensions is longer: another image is cut off there.
  const isLong = header === "unfinished" && bytes.byteLength > MAX_IMAGE_HEAD_BYTES;
  if (isLong) return { contentType: "image/jpeg" };
  const beginning = Buffer.from(bytes.subarray(0, SVG_HEAD_BYTES)).toString("latin1");
  const found = UNREAD_FORMATS.find(({ beginsAs }) => beginsAs.test(beginning));
  return found && { contentType: found.contentType };
}

/** Of an SVG what precedes its root: a byte order mark, a declaration, a document type, comments. */
const SVG_HEAD_BYTES = 2_048;
const SVG_ROOT =
  /^(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--(?:(?!-->)[\s\S])*-->\s*|<!doctype svg[^>[]*>\s*)*<svg[\s>/]/i;

const UNREAD_FORMATS: readonly { readonly contentType: string; readonly beginsAs: RegExp }[] = [
  { contentType: "image/gif", beginsAs: /^GIF8[79]a/ },
  { contentType: "image/avif", beginsAs: /^[\s\S]{4}ftypavi[fs]/ },
  { contentType: "image/svg+xml", beginsAs: SVG_ROOT },
];

/** PNG specification, section 11.2.1. */
function readPng(view: DataView): ReturnType<Reader> {
  if (view.byteLength < 24) return undefined;
  return { width: view.getUint32(16), height: view.getUint32(20) };
}

/** WebP container specification and RFC 6386, section 9.1; RFC 9649. */
function readWebp(view: DataView): ReturnType<Reader> {
  if (view.byteLength < 30) return undefined;
  switch (String.fromCharCode(view.getUint8(15))) {
    case "X":
      return { width: 1 + uint24(view, 24), height: 1 + uint24(view, 27) };
    case "L": {
      const bits = view.getUint32(21, true);
      return { width: 1 + (bits & 0x3fff), height: 1 + ((bits >>> 14) & 0x3fff) };
    }
    default:
      return {
        width: view.getUint16(26, true) & 0x3fff,
        height: view.getUint16(28, true) & 0x3fff,
      };
  }
}

function uint24(view: DataView, at: number): number {
  return view.getUint16(at, true) | (view.getUint8(at + 2) << 16);
}

/** Goes from segment to segment up to the frame header (ITU-T T.81, annex B). */
function readJpeg(view: DataView): ReturnType<Reader> {
  let at = 2;
  while (at + 4 <= view.byteLength) {
    if (view.getUint8(at) !== 0xff) return { width: 0, height: 0 };
    const marker = view.getUint8(at + 1);
    if (marker === 0xff) {
      at += 1;
      continue;
    }
    const standsAlone = marker === 0x01 || (marker >= 0xd0 && marker <= 0xd8);
    if (standsAlone) {
      at += 2;
      continue;
    }
    // End of the image, or its data, before any frame.
    if (marker === 0xd9 || marker === 0xda) return { width: 0, height: 0 };
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame) {
      if (at + 9 > view.byteLength) return undefined;
      return { width: view.getUint16(at + 7), height: view.getUint16(at + 5) };
    }
    at += 2 + view.getUint16(at + 2);
  }
  return undefined;
}
