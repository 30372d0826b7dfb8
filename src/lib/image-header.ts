/**
 * Most bytes that are read to find the dimensions. These are near the beginning; only a JPEG can have much data,
 * such as colour profiles, before them.
 */
export const MAX_IMAGE_HEAD_BYTES = 1024 * 1024;

export interface ImageHeader {
  readonly contentType: string;
  /** Width and height in pixels. */
  readonly width: number;
  readonly height: number;
}

/** `unfinished`: more bytes are needed to decide. */
type ReadHeader = ImageHeader | "unfinished" | "not-an-image";

type Reader = (view: DataView) => { width: number; height: number } | undefined;

const FORMATS: readonly {
  readonly contentType: string;
  /** The first bytes. A dot matches any byte. */
  readonly magic: string;
  readonly read: Reader;
}[] = [
  { contentType: "image/png", magic: "\x89PNG\r\n\x1a\n....IHDR", read: readPng },
  { contentType: "image/jpeg", magic: "\xff\xd8\xff", read: readJpeg },
  { contentType: "image/webp", magic: "RIFF....WEBPVP8", read: readWebp },
];

/** Returns the format and dimensions of an image from its first bytes. Never throws, for any bytes. */
export function readImageHeader(head: Uint8Array): ReadHeader {
  let mayMatch = false;
  for (const { contentType, magic, read } of FORMATS) {
    const seen = Math.min(magic.length, head.byteLength);
    let matches = true;
    for (let at = 0; at < seen; at++) {
      if (magic[at] !== "." && magic.charCodeAt(at) !== head[at]) matches = false;
    }
    if (!matches) continue;
    if (head.byteLength < magic.length) {
      mayMatch = true;
      continue;
    }
    const view = new DataView(head.buffer, head.byteOffset, head.byteLength);
    const size = read(view);
    return size === undefined ? "unfinished" : { contentType, ...size };
  }
  return mayMatch ? "unfinished" : "not-an-image";
}

/** The type of an image, with its sides in pixels if the gateway can read the format. */
export interface ImageKind {
  readonly contentType: string;
  readonly width?: number;
  readonly height?: number;
}

/**
 * Returns the type of a complete image, also of a few formats without dimensions. Returns undefined for other
 * bytes. Never throws.
 */
export function kindOfImage(bytes: Uint8Array): ImageKind | undefined {
  const header = readImageHeader(bytes.subarray(0, MAX_IMAGE_HEAD_BYTES));
  if (typeof header !== "string") {
    return header.width > 0 && header.height > 0 ? header : undefined;
  }
  // Only a JPEG can have its dimensions after this many bytes. Any other unfinished image is truncated.
  const isLong = header === "unfinished" && bytes.byteLength > MAX_IMAGE_HEAD_BYTES;
  if (isLong) return { contentType: "image/jpeg" };
  const beginning = Buffer.from(bytes.subarray(0, SVG_HEAD_BYTES)).toString("latin1");
  const format = UNREAD_FORMATS.find(({ beginsAs }) => beginsAs.test(beginning));
  return format && { contentType: format.contentType };
}

/**
 * The bytes searched for the root of an SVG. A byte order mark, a declaration, a document type and comments can
 * precede it.
 */
const SVG_HEAD_BYTES = 2_048;
const SVG_ROOT =
  /^(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--(?:(?!-->)[\s\S])*-->\s*|<!doctype svg[^>[]*>\s*)*<svg[\s>/]/i;

const UNREAD_FORMATS: readonly { readonly contentType: string; readonly beginsAs: RegExp }[] = [
  { contentType: "image/gif", beginsAs: /^GIF8[79]a/ },
  { contentType: "image/avif", beginsAs: /^[\s\S]{4}ftypavi[fs]/ },
  { contentType: "image/svg+xml", beginsAs: SVG_ROOT },
];

/** Reads a PNG (PNG specification, section 11.2.1). */
function readPng(view: DataView): ReturnType<Reader> {
  if (view.byteLength < 24) return undefined;
  return { width: view.getUint32(16), height: view.getUint32(20) };
}

/** Reads a WebP (WebP container specification; RFC 6386, section 9.1; RFC 9649). */
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

/** Reads the segments of a JPEG up to its frame header (ITU-T T.81, annex B). */
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
    // The end of the image, or its data, comes before any frame.
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
