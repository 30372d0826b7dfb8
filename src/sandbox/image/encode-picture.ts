import { promisify } from "node:util";
import { crc32, deflate } from "node:zlib";
import { WorkThread } from "../../lib/work-thread.ts";
import type { Picture } from "./picture.ts";

export type PictureFormat = "png" | "jpeg" | "webp";

export interface LossyCall {
  readonly format: Exclude<PictureFormat, "png">;
  readonly picture: Picture;
  /** Quality of the picture, in percent. */
  readonly quality: number;
}

/** Time for one picture, in milliseconds. The largest picture takes a second on an idle machine. */
const DEADLINE_MS = 60_000;
const DEFAULT_QUALITY = 90;
const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const PALETTE_COLOUR = 3;
const BIT_DEPTH = 8;

const deflated = promisify(deflate);

/**
 * Encodes pictures: PNG with zlib's threads, JPEG and WebP in a separate thread that ends when it is idle.
 */
export class PictureEncoder {
  readonly #thread = new WorkThread({
    script: new URL("./encoding-thread.ts", import.meta.url),
    deadlineMs: DEADLINE_MS,
    // The thread's calls are rejected, which reports the loss.
    onLost() {},
  });

  /**
   * Returns the encoded picture. Rejects with GatewayError 503 if the thread is lost. @param quality of JPEG
   * and WebP, in percent
   */
  async encode(
    picture: Picture,
    format: PictureFormat,
    quality = DEFAULT_QUALITY,
  ): Promise<Buffer> {
    if (format === "png") return encodePng(picture);
    const call: LossyCall = { format, picture, quality };
    return Buffer.from(await this.#thread.call<ArrayBuffer>(call));
  }
}

/** Returns a PNG with a palette (W3C PNG, third edition). Its rows have no filter. */
async function encodePng({ width, height, pixels, palette }: Picture): Promise<Buffer> {
  const rows = Buffer.alloc(height * (width + 1));
  for (let y = 0; y < height; y++) {
    rows.set(pixels.subarray(y * width, (y + 1) * width), y * (width + 1) + 1);
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([BIT_DEPTH, PALETTE_COLOUR], 8);
  return Buffer.concat([
    Buffer.from(SIGNATURE),
    chunk("IHDR", header),
    chunk("PLTE", Buffer.from(palette.flatMap((colour) => colour.slice(0, 3)))),
    chunk("tRNS", Buffer.from(palette.map(([, , , opacity]) => opacity))),
    chunk("IDAT", await deflated(rows)),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

function chunk(type: string, data: Buffer): Buffer {
  const typed = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const frame = Buffer.alloc(8);
  frame.writeUInt32BE(data.length, 0);
  frame.writeUInt32BE(crc32(typed), 4);
  return Buffer.concat([frame.subarray(0, 4), typed, frame.subarray(4)]);
}
