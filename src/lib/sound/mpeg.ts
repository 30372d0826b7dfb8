import type { ByteWindow } from "./byte-window.ts";

/** MPEG audio (ISO/IEC 11172-3 and 13818-3) and AAC in ADTS (ISO/IEC 13818-7), frame by frame. */

/** Kilobits a second, by layer. */
const RATES_1: readonly (readonly number[])[] = [
  [0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
  [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
  [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
];
const RATES_2: readonly (readonly number[])[] = [
  [0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
  [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
  [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];
const SAMPLE_RATES = [44_100, 48_000, 32_000];
const ADTS_RATES = [
  96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
  7_350,
];
const SYNC = new Uint8Array([0xff]);
const SIDE_INFORMATION_BYTES = 40;

interface Frame {
  readonly lengthBytes: number;
  readonly samples: number;
  readonly rate: number;
  /** Same for all frames of a stream. */
  readonly kind: number;
}

/** Where the tags of ID3v2 at the beginning end (https://id3.org/id3v2.4.0-structure), whatever they hold. */
export function id3End(bytes: ByteWindow): number {
  let position = 0;
  while (bytes.text(position, 3) === "ID3" && position < bytes.sizeBytes) {
    let length = 0;
    for (let at = 6; at < 10; at++) length = length * 128 + (bytes.byte(position + at) & 0x7f);
    const hasFooter = (bytes.byte(position + 5) & 0x10) !== 0;
    position += 10 + length + (hasFooter ? 10 : 0);
  }
  return Math.min(position, bytes.sizeBytes);
}

/** The seconds of the frames between two positions; 0 where there are none. */
export function mpegSeconds(bytes: ByteWindow, start: number, end: number): number {
  let seconds = 0;
  let position = start;
  let isInStep = false;
  let isFirst = true;
  while (position + 4 <= end) {
    const frame = frameAt(bytes, position);
    if (frame === undefined || (!isInStep && !isFollowed(bytes, position, frame, end))) {
      isInStep = false;
      position = bytes.find(SYNC, position + 1);
      continue;
    }
    // The last frame may be cut; a decoder drops it.
    if (position + frame.lengthBytes > end) break;
    if (!isFirst || !isInformation(bytes, position)) seconds += frame.samples / frame.rate;
    isFirst = false;
    isInStep = true;
    position += frame.lengthBytes;
  }
  return seconds;
}

/** Bytes that look like a frame are one if another of its kind follows, or nothing. */
function isFollowed(bytes: ByteWindow, position: number, frame: Frame, end: number): boolean {
  const next = position + frame.lengthBytes;
  return next === end || frameAt(bytes, next)?.kind === frame.kind;
}

/** LAME and others write what they know of the file into a first frame that is silent. */
function isInformation(bytes: ByteWindow, position: number): boolean {
  return /Xing|Info|VBRI/.test(bytes.text(position + 4, SIDE_INFORMATION_BYTES));
}

function frameAt(bytes: ByteWindow, position: number): Frame | undefined {
  if (bytes.byte(position) !== 0xff) return undefined;
  const second = bytes.byte(position + 1);
  if ((second & 0xf6) === 0xf0) return adtsFrame(bytes, position, second);
  const version = (second >> 3) & 3;
  const layer = 3 - ((second >> 1) & 3);
  const third = bytes.byte(position + 2);
  const rate = SAMPLE_RATES[(third >> 2) & 3];
  if ((second & 0xe0) !== 0xe0 || version === 1 || layer === 3 || rate === undefined) {
    return undefined;
  }
  const isFirst = version === 3;
  const kilobits = (isFirst ? RATES_1 : RATES_2)[layer]![third >> 4] ?? 0;
  if (kilobits === 0) return undefined;
  const sampleRate = rate >> (isFirst ? 0 : version === 2 ? 1 : 2);
  const samples = layer === 0 ? 384 : layer === 2 && !isFirst ? 576 : 1_152;
  const padding = (third >> 1) & 1;
  const slots = Math.floor(((samples / 8) * kilobits * 1_000) / sampleRate);
  const lengthBytes =
    layer === 0 ? (Math.floor((12_000 * kilobits) / sampleRate) + padding) * 4 : slots + padding;
  return { lengthBytes, samples, rate: sampleRate, kind: (second & 0x1e) * 4 + ((third >> 2) & 3) };
}

function adtsFrame(bytes: ByteWindow, position: number, second: number): Frame | undefined {
  const third = bytes.byte(position + 2);
  const rate = ADTS_RATES[(third >> 2) & 15];
  const lengthBytes = (bytes.number(position + 3, 3) >> 5) & 0x1fff;
  if (rate === undefined || lengthBytes < 7) return undefined;
  const samples = 1_024 * ((bytes.byte(position + 6) & 3) + 1);
  return { lengthBytes, samples, rate, kind: 256 + (second & 8) * 32 + ((third >> 2) & 15) };
}
