import type { ByteWindow } from "./byte-window.ts";

const SYNC = new Uint8Array([0xff]);
const LAST_BLOCK = 0x80;
const STREAM_INFORMATION = 0;
const MAX_HEADING_BYTES = 16;
/** Samples a second, by the code in the heading of a frame, which counts more than that of the file. */
const RATES: readonly (number | undefined)[] = [
  ...[undefined, 88_200, 176_400, 192_000, 8_000, 16_000],
  ...[22_050, 24_000, 32_000, 44_100, 48_000, 96_000],
];

/**
 * FLAC (RFC 9639): the samples that its frames say they hold. Frames have no length, so that each is found by
 * the beginning and the checksum of its heading.
 */
export function flacSeconds(bytes: ByteWindow, start: number): number {
  let position = start + 4;
  let rate = 0;
  for (;;) {
    const type = bytes.byte(position);
    const length = bytes.number(position + 1, 3);
    if ((type & ~LAST_BLOCK) === STREAM_INFORMATION) rate = bytes.number(position + 14, 3) >> 4;
    position += 4 + length;
    if ((type & LAST_BLOCK) !== 0 || position >= bytes.sizeBytes) break;
  }
  if (rate === 0) return 0;
  let seconds = 0;
  let first: number | undefined;
  while (position < bytes.sizeBytes) {
    const frame = frameAt(bytes, position);
    if (frame !== undefined && (first === undefined || frame.kind === first)) {
      first = frame.kind;
      seconds += frame.samples / (frame.rate ?? rate);
    }
    position = bytes.find(SYNC, position + 1);
  }
  return seconds;
}

/** Its samples, and what is the same in all frames of a stream; undefined where there is no frame. */
function frameAt(bytes: ByteWindow, position: number) {
  const second = bytes.byte(position + 1);
  if (bytes.byte(position) !== 0xff || (second & 0xfe) !== 0xf8) return undefined;
  const third = bytes.byte(position + 2);
  const fourth = bytes.byte(position + 3);
  const size = third >> 4;
  const rate = third & 15;
  if (size === 0 || rate === 15 || (fourth & 1) !== 0 || fourth >> 4 > 10) return undefined;
  let at = position + 4 + numberLength(bytes.byte(position + 4));
  let samples = sizeOfCode(size);
  if (size === 6) samples = bytes.number(at, 1) + 1;
  if (size === 7) samples = bytes.number(at, 2) + 1;
  at += size === 6 ? 1 : size === 7 ? 2 : 0;
  at += rate === 12 ? 1 : rate > 12 ? 2 : 0;
  if (at - position > MAX_HEADING_BYTES || checksum(bytes, position, at) !== bytes.byte(at)) {
    return undefined;
  }
  return { samples, rate: RATES[rate], kind: second * 4_096 + rate * 16 + (fourth & 15) };
}

function sizeOfCode(code: number): number {
  if (code === 1) return 192;
  return code < 6 ? 576 << (code - 2) : 256 << (code - 8);
}

/** Bytes of a number that is written as UTF-8 writes characters. */
function numberLength(first: number): number {
  return first < 0x80 ? 1 : Math.max(1, Math.clz32(~(first << 24)));
}

/** CRC-8 of polynomial 0x07. */
function checksum(bytes: ByteWindow, start: number, end: number): number {
  let value = 0;
  for (let position = start; position < end; position++) {
    value ^= bytes.byte(position);
    for (let bit = 0; bit < 8; bit++) value = value & 0x80 ? (value << 1) ^ 0x07 : value << 1;
    value &= 0xff;
  }
  return value;
}
