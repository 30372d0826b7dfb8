import { GatewayError } from "../../lib/errors.ts";
import { type FilePurpose, UPLOAD_PURPOSES, type UploadPurpose } from "../../lib/file-record.ts";
import { type ImageHeader, MAX_IMAGE_HEAD_BYTES, readImageHeader } from "../../lib/image-header.ts";
import { isFields, jsonValue } from "../../lib/json.ts";
import { checkBatchLine, checkChatLine, JsonLinesCheck } from "./json-lines-check.ts";

const MEGABYTE = 1024 * 1024;

/** Maximum bytes of a file of any purpose (spec 8). */
export const MAX_FILE_BYTES = 512 * MEGABYTE;
const MAX_VISION_BYTES = 20 * MEGABYTE;
const VISION_LIFETIME_SECONDS = 24 * 60 * 60;

export function maxBytes(purpose: FilePurpose): number {
  return purpose === "vision" ? MAX_VISION_BYTES : MAX_FILE_BYTES;
}

/**
 * Returns the lifetime of a file in seconds from its creation. Null if the file is stored until it is
 * deleted.
 *
 * @param requestedSeconds a purpose with a fixed lifetime does not allow a longer one
 */
export function lifetimeSeconds(
  purpose: FilePurpose,
  requestedSeconds: number | undefined,
): number | null {
  if (purpose !== "vision") return requestedSeconds ?? null;
  return Math.min(VISION_LIFETIME_SECONDS, requestedSeconds ?? VISION_LIFETIME_SECONDS);
}

/** Limits of `expires_after.seconds`: an hour and 30 days, as in OpenAI's API. */
export const MIN_LIFETIME_SECONDS = 3_600;
export const MAX_LIFETIME_SECONDS = 2_592_000;

/**
 * Reads `expires_after` of an upload: a form part for each member, as OpenAI's clients send it, or one part
 * with JSON.
 */
export class ExpiresAfter {
  #hasAnchor = false;
  #seconds: number | undefined;

  /**
   * Reads a part. Returns false if the part does not belong to `expires_after`. Throws 400 if the part is
   * invalid or repeated.
   */
  take(part: string, value: string): boolean {
    if (part === "expires_after") {
      const stated = jsonValue(value);
      if (!isFields(stated)) throw wrongExpiry("must be an object");
      for (const name in stated) this.#set(name, stated[name]);
      return true;
    }
    const name = /^expires_after\[(.*)\]$/.exec(part)?.[1];
    if (name === undefined) return false;
    this.#set(name, /^\d{1,15}$/.test(value) ? Number(value) : value);
    return true;
  }

  /**
   * The lifetime in seconds. Undefined if the upload states no lifetime. Throws 400 if only the anchor or only
   * the seconds are stated.
   */
  get seconds(): number | undefined {
    if (this.#hasAnchor === (this.#seconds !== undefined)) return this.#seconds;
    throw wrongExpiry("needs both anchor and seconds");
  }

  #set(name: string, value: unknown): void {
    if (name === "anchor") this.#setAnchor(value);
    else if (name === "seconds") this.#setSeconds(value);
    else throw wrongExpiry("must have only anchor and seconds");
  }

  #setAnchor(value: unknown): void {
    if (this.#hasAnchor || value !== "created_at") {
      throw wrongExpiry('needs the anchor "created_at", once');
    }
    this.#hasAnchor = true;
  }

  #setSeconds(value: unknown): void {
    const isWithin =
      Number.isSafeInteger(value) &&
      (value as number) >= MIN_LIFETIME_SECONDS &&
      (value as number) <= MAX_LIFETIME_SECONDS;
    if (this.#seconds !== undefined || !isWithin) {
      const bounds = `${MIN_LIFETIME_SECONDS} to ${MAX_LIFETIME_SECONDS}`;
      throw wrongExpiry(`needs seconds, an integer from ${bounds}, once`);
    }
    this.#seconds = value as number;
  }
}

function wrongExpiry(what: string): GatewayError {
  return new GatewayError("invalid_body", `expires_after ${what}.`, { param: "expires_after" });
}

export function isUploadPurpose(text: string): text is UploadPurpose {
  return (UPLOAD_PURPOSES as readonly string[]).includes(text);
}

/** Checks a file's bytes while they arrive. Throws a GatewayError with 400 at the first fault. */
export interface FileCheck {
  write(piece: Uint8Array): void;
  /** Called after the last byte. */
  end(): void;
  /** The content type that the bytes show. Complete at the end. */
  readonly contentType?: string | undefined;
}

/** Returns the check of a purpose (spec 4.2), or undefined if the purpose accepts any bytes. */
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

/** Purposes whose files are checked. Others accept any bytes. */
export const CHECKED: readonly FilePurpose[] = ["fine-tune", "batch", "vision"];

/**
 * Runs all checks, for bytes whose purpose arrives after them. A failed check stops, and its fault counts
 * only if its purpose is chosen.
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

  /** Returns the check of the purpose in its current state. Throws the fault of the check if it has failed. */
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

/** Throws 400 if a file is not a PNG, JPEG or WEBP image, or its dimensions are unreadable or too large. */
class ImageCheck implements FileCheck {
  #head = new Uint8Array(0);
  #header: ImageHeader | undefined;

  get contentType(): string | undefined {
    return this.#header?.contentType;
  }

  write(piece: Uint8Array): void {
    if (this.#header !== undefined) return;
    const room = MAX_IMAGE_HEAD_BYTES - this.#head.byteLength;
    this.#head = new Uint8Array(Buffer.concat([this.#head, piece.subarray(0, room)]));
    const header = readImageHeader(this.#head);
    if (header === "not-an-image") throw notAnImage();
    if (header !== "unfinished") this.#accept(header);
    else if (this.#head.byteLength === MAX_IMAGE_HEAD_BYTES) throw noDimensions();
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
        `The image has ${width} × ${height} pixels; a side can have at most ${MAX_IMAGE_SIDE_PIXELS}.`,
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
