import { AAC_RATES, aacSound } from "./aac.ts";
import { type ByteWindow, UnmeasurableSound } from "./byte-window.ts";
import { type MeasuredSound, NO_SOUND } from "./measured-sound.ts";

/** MPEG audio (ISO/IEC 11172-3 and 13818-3) and AAC in ADTS (ISO/IEC 13818-7), measured frame by frame. */

/** Kilobits per second by layer. */
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
/** 448 kbit/s, the highest rate of layer I. */
const MAX_BYTES_A_SECOND = 56_000;
const SIDE_INFORMATION_BYTES = 40;
const KINDS = 256;
/**
 * Smallest share of the longest kind's duration. Kinds below it, or with fewer than four frames, look like
 * headers by chance.
 */
const LEAST_SHARE_OF_KIND = 0.25;
/** Consecutive frames without a gap that do not occur by chance in other data. */
const SURE_RUN = 4;
/** A file with a larger part outside of frames and tags can be of another codec. */
const MAX_UNREAD_PART = 0.25;
const UNREAD_BYTES = 4_096;

interface Frame {
  readonly lengthBytes: number;
  readonly samples: number;
  readonly rate: number;
  /** A code below 256 that is equal for all frames of a stream. */
  readonly kind: number;
  /** Channels of an AAC frame, whose highest rate is per channel. */
  readonly channels?: number;
}

/** The frames of one format in a range. */
interface Frames {
  readonly seconds: number;
  readonly count: number;
  readonly bytes: number;
  /** Most consecutive frames without a byte between them. */
  readonly longestRun: number;
  /** Highest sample rate. */
  readonly rate: number;
  readonly channels: number;
}

/**
 * Returns the end of the ID3v2 tags at the beginning (https://id3.org/id3v2.4.0-structure), whatever their
 * content.
 */
export function id3End(bytes: ByteWindow): number {
  let position = 0;
  while (isId3(bytes, position)) {
    let length = 0;
    for (let at = 6; at < 10; at++) length = length * 128 + bytes.byte(position + at);
    const hasFooter = (bytes.byte(position + 5) & 0x10) !== 0;
    position += 10 + length + (hasFooter ? 10 : 0);
  }
  return Math.min(position, bytes.sizeBytes);
}

/** Returns true for a tag that decoders recognise. They read other bytes as audio. */
function isId3(bytes: ByteWindow, position: number): boolean {
  if (bytes.text(position, 3) !== "ID3") return false;
  if (bytes.byte(position + 3) === 0xff || bytes.byte(position + 4) === 0xff) return false;
  return [6, 7, 8, 9].every((at) => bytes.byte(position + at) < 0x80);
}

/** Measures a range that contains only frames and tags. Throws UnmeasurableSound if a large part is neither. */
export function mpegSound(bytes: ByteWindow, start: number): MeasuredSound {
  const end = bytes.sizeBytes;
  const [mpeg, adts] = framesOf(bytes, start, end);
  const tagBytes = Math.min(tagBytesAtEnd(bytes), (end - start) / 2);
  const unread = end - start - tagBytes - Math.max(mpeg.bytes, adts.bytes);
  if (unread > Math.max(UNREAD_BYTES, (end - start) * MAX_UNREAD_PART)) {
    throw new UnmeasurableSound();
  }
  return soundOf(mpeg, adts);
}

/** Measures the frames in a container's packets, whatever is between the frames. */
export function mpegSoundIn(bytes: ByteWindow, start: number, end: number): MeasuredSound {
  return soundOf(...framesOf(bytes, start, end));
}

/**
 * Measures frames in bytes that claim to be samples, because decoders search for them. Returns no sound if no run
 * of frames is long enough.
 */
export function disguisedMpegSound(bytes: ByteWindow, start: number, end: number): MeasuredSound {
  const [mpeg, adts] = framesOf(bytes, start, end);
  return mpeg.longestRun >= SURE_RUN || adts.longestRun >= SURE_RUN
    ? soundOf(mpeg, adts)
    : NO_SOUND;
}

/** Counts the frames of both formats. Frames of one format do not hide frames of the other format. */
function framesOf(bytes: ByteWindow, start: number, end: number): [Frames, Frames] {
  const mpeg = new FrameCount(bytes, start, end);
  const adts = new FrameCount(bytes, start, end);
  for (let position = start; ; position++) {
    position = bytes.findByte(0xff, position);
    if (position + 4 > end) break;
    const second = bytes.byte(position + 1);
    if ((second & 0xe0) !== 0xe0) continue;
    if ((second & 0x06) !== 0) {
      const frame = mpegFrameAt(bytes, position, second);
      if (frame !== undefined) mpeg.take(frame, position);
    } else if ((second & 0x10) !== 0) {
      const frame = adtsFrameAt(bytes, position);
      if (frame !== undefined) adts.take(frame, position);
    }
  }
  return [mpeg.frames(), adts.frames()];
}

function soundOf(mpeg: Frames, adts: Frames): MeasuredSound {
  const seconds = Math.max(mpeg.seconds, mpeg.count > 0 ? mpeg.bytes / MAX_BYTES_A_SECOND : 0);
  if (adts.count === 0) return { seconds, longestSeconds: seconds };
  const form = { rate: adts.rate, frameSamples: 1_024, channels: adts.channels };
  const { longestSeconds } = aacSound(0, adts.bytes, form);
  const longest = Math.max(seconds, adts.seconds);
  // MPEG audio contains few bytes that look like ADTS.
  const isAdts = adts.bytes > mpeg.bytes;
  return { seconds: longest, longestSeconds: isAdts ? Math.max(longest, longestSeconds) : longest };
}

/**
 * Adds up frames. Decoders differ in which of two overlapping frames they play: some take the next header after
 * the end of the last frame, others only frames of one kind. The longer result counts: all frames in order, or
 * for each kind the most frames that can follow one another.
 */
class FrameCount {
  readonly #bytes: ByteWindow;
  readonly #end: number;
  readonly #kindSeconds = new Float64Array(KINDS);
  readonly #kindLast = new Float64Array(KINDS);
  readonly #kindEnd = new Float64Array(KINDS);
  readonly #kindCount = new Uint32Array(KINDS);
  /** End of the last frame in order. */
  #next: number;
  #isFirst = true;
  #run = 0;
  #longestRun = 0;
  #seconds = 0;
  #count = 0;
  #covered = 0;
  #rate = 0;
  #channels = 1;

  constructor(bytes: ByteWindow, start: number, end: number) {
    this.#bytes = bytes;
    this.#next = start;
    this.#end = end;
  }

  take(frame: Frame, position: number): void {
    const end = position + frame.lengthBytes;
    // The last frame can be cut; decoders drop it.
    if (end > this.#end) return;
    const isSilent = this.#isFirst && isInformation(this.#bytes, position);
    const seconds = isSilent ? 0 : frame.samples / frame.rate;
    this.#isFirst = false;
    this.#takeOfKind(frame.kind, seconds, position, end);
    if (position < this.#next) return;
    this.#run = position === this.#next ? this.#run + 1 : 1;
    this.#longestRun = Math.max(this.#longestRun, this.#run);
    this.#seconds += seconds;
    this.#count++;
    this.#covered += frame.lengthBytes;
    this.#rate = Math.max(this.#rate, frame.rate);
    this.#channels = Math.max(this.#channels, frame.channels ?? 1);
    this.#next = end;
  }

  #takeOfKind(kind: number, seconds: number, position: number, end: number): void {
    if (position >= this.#kindEnd[kind]!) {
      this.#kindSeconds[kind]! += seconds;
      this.#kindCount[kind]!++;
    } else if (end < this.#kindEnd[kind]!) {
      // More frames fit after the frame that ends first.
      this.#kindSeconds[kind]! += seconds - this.#kindLast[kind]!;
    } else return;
    this.#kindLast[kind] = seconds;
    this.#kindEnd[kind] = end;
  }

  frames(): Frames {
    const longestKind = Math.max(0, ...this.#kindSeconds);
    const ofKinds = this.#kindSeconds
      .filter((_, kind) => this.#kindCount[kind]! >= SURE_RUN)
      .filter((seconds) => seconds >= longestKind * LEAST_SHARE_OF_KIND)
      .reduce((sum, seconds) => sum + seconds, 0);
    return {
      seconds: Math.max(this.#seconds, ofKinds),
      count: this.#count,
      bytes: this.#covered,
      longestRun: this.#longestRun,
      rate: this.#rate,
      channels: this.#channels,
    };
  }
}

/** Returns true for the silent first frame in which LAME and others store information about the file. */
function isInformation(bytes: ByteWindow, position: number): boolean {
  return /Xing|Info|VBRI/.test(bytes.text(position + 4, SIDE_INFORMATION_BYTES));
}

/**
 * Returns the bytes of ID3v1 and APEv2 tags (https://wiki.hydrogenaud.io/index.php?title=APEv2_specification).
 */
function tagBytesAtEnd(bytes: ByteWindow): number {
  const size = bytes.sizeBytes;
  const id3Bytes = bytes.text(size - 128, 3) === "TAG" ? 128 : 0;
  const footer = size - id3Bytes - 32;
  if (footer < 0 || bytes.text(footer, 8) !== "APETAGEX") return id3Bytes;
  return id3Bytes + 32 + bytes.littleEndian(footer + 12, 4);
}

function mpegFrameAt(bytes: ByteWindow, position: number, second: number): Frame | undefined {
  const version = (second >> 3) & 3;
  const layer = 3 - ((second >> 1) & 3);
  if (version === 1) return undefined;
  const third = bytes.byte(position + 2);
  const rate = SAMPLE_RATES[(third >> 2) & 3];
  if (rate === undefined) return undefined;
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

function adtsFrameAt(bytes: ByteWindow, position: number): Frame | undefined {
  const third = bytes.byte(position + 2);
  const code = (third >> 2) & 15;
  const rate = AAC_RATES[code];
  const lengthBytes = (bytes.number(position + 3, 3) >> 5) & 0x1fff;
  if (rate === undefined || lengthBytes < 7) return undefined;
  const blocks = (bytes.byte(position + 6) & 3) + 1;
  const channels = ((third & 1) << 2) | (bytes.byte(position + 3) >> 6) || 8;
  return { lengthBytes, samples: 1_024 * blocks, rate, kind: code * 4 + blocks - 1, channels };
}
