export type ImageKind = "png" | "jpeg" | "gif" | "webp-lossy" | "webp-lossless" | "webp-extended";

/** The beginning of an image of this size, as far as its dimensions, with some bytes behind it. */
export function image(kind: ImageKind, width: number, height: number): Uint8Array {
  return Buffer.concat([HEADS[kind](width, height), Buffer.alloc(40)]);
}

const u16 = (value: number) => [value >> 8, value & 255];
const u16le = (value: number) => [value & 255, value >> 8];
const u24le = (value: number) => [value & 255, (value >> 8) & 255, value >> 16];
const text = (value: string) => [...Buffer.from(value, "latin1")];

const HEADS: Record<ImageKind, (width: number, height: number) => Buffer> = {
  png: (width, height) => {
    const size = Buffer.alloc(8);
    size.writeUInt32BE(width, 0);
    size.writeUInt32BE(height, 4);
    return Buffer.from([...text("\x89PNG\r\n\x1a\n"), 0, 0, 0, 13, ...text("IHDR"), ...size]);
  },
  // A segment of its application, a fill byte, a table, then the frame.
  jpeg: (width, height) =>
    Buffer.from([
      ...[0xff, 0xd8, 0xff, 0xe0, ...u16(6), 1, 2, 3, 4, 0xff, 0xff, 0xc4, ...u16(3), 0],
      ...[0xff, 0xc2, ...u16(17), 8, ...u16(height), ...u16(width), 3],
    ]),
  gif: (width, height) => Buffer.from([...text("GIF89a"), ...u16le(width), ...u16le(height)]),
  "webp-lossy": (width, height) =>
    Buffer.from([
      ...text("RIFF"),
      ...[0, 0, 0, 0],
      ...text("WEBPVP8 "),
      ...[0, 0, 0, 0, 0, 0, 0, 0x9d, 0x01, 0x2a],
      ...u16le(width),
      ...u16le(height),
    ]),
  "webp-lossless": (width, height) => {
    const bits = Buffer.alloc(4);
    bits.writeUInt32LE((width - 1) | ((height - 1) << 14));
    return Buffer.from([
      ...text("RIFF"),
      0,
      0,
      0,
      0,
      ...text("WEBPVP8L"),
      0,
      0,
      0,
      0,
      0x2f,
      ...bits,
    ]);
  },
  "webp-extended": (width, height) =>
    Buffer.from([
      ...text("RIFF"),
      ...[0, 0, 0, 0],
      ...text("WEBPVP8X"),
      ...[10, 0, 0, 0, 0, 0, 0, 0],
      ...u24le(width - 1),
      ...u24le(height - 1),
    ]),
};
