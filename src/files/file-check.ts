import { GatewayError } from "../lib/errors.ts";
import { type FilePurpose, UPLOAD_PURPOSES, type UploadPurpose } from "../lib/file-record.ts";
import { checkBatchLine, checkChatLine, JsonLinesCheck } from "./json-lines-check.ts";

const MEGABYTE = 1024 * 1024;

/** Largest file of any purpose (spec 8). */
export const MAX_FILE_BYTES = 512 * MEGABYTE;
const MAX_VISION_BYTES = 20 * MEGABYTE;
const VISION_LIFETIME_SECONDS = 24 * 60 * 60;

export function maxBytes(purpose: FilePurpose): number {
  return purpose === "vision" ? MAX_VISION_BYTES : MAX_FILE_BYTES;
}

/** Null: kept until it is deleted. */
export function lifetimeSeconds(purpose: FilePurpose): number | null {
  return purpose === "vision" ? VISION_LIFETIME_SECONDS : null;
}

export function isUploadPurpose(text: string): text is UploadPurpose {
  return (UPLOAD_PURPOSES as readonly string[]).includes(text);
}

/** Looks at a file's bytes as they pass. Throws a GatewayError, 400, at the first fault. */
export interface FileCheck {
  write(piece: Uint8Array): void;
  /** The last byte has passed. */
  end(): void;
  /** The content type that the bytes themselves tell; known at the end. */
  readonly contentType?: string | undefined;
}

/** The check of a purpose (spec 4.2); undefined where anything goes. */
export function checkOf(purpose: FilePurpose): FileCheck | undefined {
  switch (purpose) {
    case "fine-tune":
      return new JsonLinesCheck(checkChatLine);
    case "batch":
      return new JsonLinesCheck(checkBatchLine);
    case "vision":
      return new ImageCheck();
    default:
      return undefined;
  }
}

/** Purposes whose files are checked; others take any bytes. */
export const CHECKED: readonly FilePurpose[] = ["fine-tune", "batch", "vision"];

/**
 * All checks at once, for bytes whose purpose comes after them. A check that fails ends; its fault
 * counts when its purpose is the one.
 */
export class UndecidedCheck {
  readonly #outcomes = new Map<FilePurpose, { check: FileCheck; fault?: unknown }>(
    CHECKED.map((purpose) => [purpose, { check: checkOf(purpose)! }]),
  );

  write(piece: Uint8Array): void {
    for (const outcome of this.#outcomes.values()) attempt(outcome, (check) => check.write(piece));
  }

  end(): void {
    for (const outcome of this.#outcomes.values()) attempt(outcome, (check) => check.end());
  }

  /** The check of the purpose, as far as it has come. Throws its fault. */
  decide(purpose: FilePurpose): FileCheck | undefined {
    const outcome = this.#outcomes.get(purpose);
    if (outcome !== undefined && "fault" in outcome) throw outcome.fault;
    return outcome?.check;
  }
}

function attempt(
  outcome: { check: FileCheck; fault?: unknown },
  step: (check: FileCheck) => void,
): void {
  if ("fault" in outcome) return;
  try {
    step(outcome.check);
  } catch (fault) {
    outcome.fault = fault;
  }
}

const MAX_IMAGE_SIDE_PIXELS = 16_384;
/** Dimensions stand near the beginning; only a JPEG may carry much in front of them, such as colour profiles. */
const MAX_HEAD_BYTES = 1024 * 1024;

/** Takes images alone, of the formats that the specification names, and checks their dimensions. Throws 400. */
class ImageCheck implements FileCheck {
  #head = new Uint8Array(0);
  #header: ImageHeader | undefined;

  get contentType(): string | undefined {
    return this.#header?.contentType;
  }

  write(piece: Uint8Array): void {
    if (this.#header !== undefined) return;
    const room = MAX_HEAD_BYTES - this.#head.byteLength;
    this.#head = new Uint8Array(Buffer.concat([this.#head, piece.subarray(0, room)]));
    const header = readImageHeader(this.#head);
    if (header === "not-an-image") throw notAnImage();
    if (header !== "unfinished") this.#accept(header);
    else if (this.#head.byteLength === MAX_HEAD_BYTES) throw noDimensions();
  }

  end(): void {
    if (this.#header !== undefined) return;
    throw this.#head.byteLength < 12 ? notAnImage() : noDimensions();
  }

  #accept(header: ImageHeader): void {
    const { width, height } = header;
    if (width < 1 || height < 1) throw noDimensions();
    if (width > MAX_IMAGE_SIDE_PIXELS || height > MAX_IMAGE_SIDE_PIXELS) {
      throw invalid(
        `The image has ${width} × ${height} pixels; a side may have at most ${MAX_IMAGE_SIDE_PIXELS}.`,
      );
    }
    this.#header = header;
    this.#head = new Uint8Array(0);
  }
}

function notAnImage(): GatewayError {
  return invalid("A file for vision must be a PNG, JPEG or WEBP image.");
}

function noDimensions(): GatewayError {
  return invalid("The image is damaged: its dimensions cannot be read.");
}

function invalid(message: string): GatewayError {
  return new GatewayError("invalid_body", message, { param: "file" });
}

interface ImageHeader {
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
