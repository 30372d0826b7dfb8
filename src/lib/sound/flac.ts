import { type ByteWindow, UnmeasurableSound } from "./byte-window.ts";
import type { MeasuredSound } from "./measured-sound.ts";

const LAST_BLOCK = 0x80;
const STREAM_INFORMATION = 0;
const MAX_HEADING_BYTES = 16;
/** Samples per second by the code in a frame header, which takes precedence over the file's rate. */
const RATES: readonly (number | undefined)[] = [
  ...[undefined, 88_200, 176_400, 192_000, 8_000, 16_000],
  ...[22_050, 24_000, 32_000, 44_100, 48_000, 96_000],
];
/** A frame without compression contains its samples and at most this overhead. */
const MAX_OVERHEAD = 1.05;

export interface FlacStream {
  readonly rate: number;
  /** Bytes per second of uncompressed samples. */
  readonly bytesASecond: number;
}

/** Measures a FLAC file (RFC 9639): its metadata, then its frames. */
export function flacSound(bytes: ByteWindow, start: number): MeasuredSound {
  let position = start + 4;
  let stream: FlacStream | undefined;
  for (;;) {
    const type = bytes.byte(position);
    const length = bytes.number(position + 1, 3);
    if ((type & ~LAST_BLOCK) === STREAM_INFORMATION) {
      // If there are two blocks, decoders differ in which one they use.
      if (stream !== undefined) throw new UnmeasurableSound();
      stream = flacStream(bytes, position + 4);
    }
    position += 4 + length;
    if ((type & LAST_BLOCK) !== 0 || position >= bytes.sizeBytes) break;
  }
  if (stream === undefined) throw new UnmeasurableSound();
  const frames = flacFrameSeconds(bytes, position, bytes.sizeBytes, stream.rate);
  return flacLength(frames, bytes.sizeBytes - position, stream);
}

/** Parses the stream information block. */
export function flacStream(bytes: ByteWindow, start: number): FlacStream {
  const rate = bytes.number(start + 10, 3) >> 4;
  if (rate === 0) throw new UnmeasurableSound();
  const third = bytes.number(start + 12, 2);
  const channels = ((third >> 9) & 7) + 1;
  const bits = ((third >> 4) & 31) + 1;
  return { rate, bytesASecond: rate * channels * Math.ceil(bits / 8) };
}

/** Returns the duration of FLAC frames: at least the duration that their bytes have without compression. */
export function flacLength(
  frameSeconds: number,
  bytes: number,
  { bytesASecond }: FlacStream,
): MeasuredSound {
  const least = frameSeconds === 0 ? 0 : bytes / (bytesASecond * MAX_OVERHEAD);
  const seconds = Math.max(frameSeconds, least);
  return { seconds, longestSeconds: seconds };
}

/**
 * Returns the seconds of all frames in a range. Frames do not state their size, so each is recognised by the
 * start and the checksum of its header. Frames that differ from the stream information, for example in their
 * sample rate, count too, because decoders play them.
 */
export function flacFrameSeconds(
  bytes: ByteWindow,
  start: number,
  end: number,
  rate: number,
): number {
  let seconds = 0;
  for (
    let position = bytes.findByte(0xff, start);
    position < end;
    position = bytes.findByte(0xff, position + 1)
  ) {
    const frame = frameAt(bytes, position);
    if (frame !== undefined) seconds += frame.samples / (frame.rate ?? rate);
  }
  return seconds;
}

function frameAt(bytes: ByteWindow, position: number) {
  if ((bytes.byte(position + 1) & 0xfe) !== 0xf8) return undefined;
  const third = bytes.byte(position + 2);
  const fourth = bytes.byte(position + 3);
  const size = third >> 4;
  const code = third & 15;
  if (size === 0 || code === 15 || (fourth & 1) !== 0 || fourth >> 4 > 10) return undefined;
  let at = position + 4 + numberLength(bytes.byte(position + 4));
  let samples = sizeOfCode(size);
  if (size === 6) samples = bytes.number(at, 1) + 1;
  if (size === 7) samples = bytes.number(at, 2) + 1;
  at += size === 6 ? 1 : size === 7 ? 2 : 0;
  let rate = RATES[code];
  if (code === 12) rate = bytes.number(at, 1) * 1_000;
  if (code > 12) rate = bytes.number(at, 2) * (code === 14 ? 10 : 1);
  at += code === 12 ? 1 : code > 12 ? 2 : 0;
  if (at - position > MAX_HEADING_BYTES || rate === 0) return undefined;
  return checksum(bytes, position, at) === bytes.byte(at) ? { samples, rate } : undefined;
}

function sizeOfCode(code: number): number {
  if (code === 1) return 192;
  return code < 6 ? 576 << (code - 2) : 256 << (code - 8);
}

/** Returns the length of a number that is encoded like a UTF-8 character. */
function numberLength(first: number): number {
  return first < 0x80 ? 1 : Math.max(1, Math.clz32(~(first << 24)));
}

/** Returns the CRC-8 with polynomial 0x07. */
function checksum(bytes: ByteWindow, start: number, end: number): number {
  let value = 0;
  for (let position = start; position < end; position++) {
    value = CHECKSUM_TABLE[value ^ bytes.byte(position)]!;
  }
  return value;
}

const CHECKSUM_TABLE = Uint8Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 0x80 ? (value << 1) ^ 0x07 : value << 1;
  return value;
});
