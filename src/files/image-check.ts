import { GatewayError } from "../lib/errors.ts";
import type { FileCheck } from "./file-check.ts";
import { type ImageHeader, readImageHeader } from "./image-header.ts";

export const MAX_IMAGE_SIDE_PIXELS = 16_384;
/** Dimensions stand near the beginning; only a JPEG may carry much in front of them, such as colour profiles. */
const MAX_HEAD_BYTES = 1024 * 1024;

/** Takes images alone, of the formats that the specification names, and checks their dimensions. Throws 400. */
export class ImageCheck implements FileCheck {
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
