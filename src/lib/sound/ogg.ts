import { ByteWindow, JoinedBytes, UnmeasurableSound } from "./byte-window.ts";
import { flacFrameSeconds, flacLength, flacStream } from "./flac.ts";
import { longestOf, type MeasuredSound, playedInTurn } from "./measured-sound.ts";
import { OPUS_RATE, opusSamples, opusSeconds } from "./opus.ts";
import { MAX_VORBIS_SETUP_BYTES, VorbisSamples, vorbisIdentification } from "./vorbis.ts";

const CAPTURE = new TextEncoder().encode("OggS");
const HEADING_BYTES = 27;
const CHECKSUM = 22;
const MAX_STREAMS = 1_000;
const CONTINUED = 1;
const BEGINS = 2;
const FULL_SEGMENT = 255;
/** Granule position of a page on which no packet ends. */
const NONE = 2 ** 48 - 1;
/**
 * Limit on checked bytes, as a multiple of the file. Bytes of pages with a wrong checksum are read again, so a
 * file with mostly such pages is rejected.
 */
const MAX_CHECKED_PART = 3;
/** First bytes of streams that are not audio: video, text, and descriptions of other streams. */
const OTHERS = ["\x80theora", "fishead", "fisbone", "\x80kate", "BBCD", "OVP80"];

/** Counts the packets of a stream, by its codec. */
interface Packets {
  /** Granule positions per second. */
  readonly rate: number;
  /** Begins a packet with its first two bytes. */
  begin(first: number, second: number): void;
  /** Adds a part of the packet, by its position in the file. */
  add?(position: number, length: number): void;
  end?(): void;
  /** Returns the duration of the packets, which have the given number of bytes. */
  sound(bytes: number): MeasuredSound;
}

interface Stream {
  /** Undefined if the stream is not audio. */
  readonly codec: CodecStart | undefined;
  readonly packets: Packets | undefined;
  bytes: number;
  /** Lowest and highest granule position of its pages. */
  firstGranule: number;
  lastGranule: number;
  /** True if the last packet continues on the next page. */
  isCut: boolean;
}

/**
 * Measures Ogg (RFC 3533) by its packets. Streams that follow one another are added up. Some decoders skip pages
 * with a wrong checksum and others play them, so the longer result counts. Throws UnmeasurableSound if a stream's
 * codec is not bounded.
 */
export function oggSound(bytes: ByteWindow): MeasuredSound {
  return longestOf([soundOfPages(bytes, true), soundOfPages(bytes, false)]);
}

function soundOfPages(bytes: ByteWindow, skipsWrong: boolean): MeasuredSound {
  const open = new Map<number, Stream>();
  const ended: MeasuredSound[] = [];
  let checked = 0;
  let position = 0;
  while (position + HEADING_BYTES <= bytes.sizeBytes) {
    const page = bytes.find(CAPTURE, position);
    if (page + HEADING_BYTES > bytes.sizeBytes) break;
    const body = page + HEADING_BYTES + bytes.byte(page + 26);
    if (skipsWrong) {
      const end = endOfPage(bytes, page, body);
      checked += end - page;
      if (checked > bytes.sizeBytes * MAX_CHECKED_PART) throw new UnmeasurableSound();
      if (end > bytes.sizeBytes || !hasItsChecksum(bytes, page, end)) {
        position = page + 1;
        continue;
      }
    }
    const serial = bytes.number(page + 14, 4);
    const begins = (bytes.byte(page + 5) & BEGINS) !== 0;
    let stream = open.get(serial);
    if (stream === undefined || (begins && beginsAgain(bytes, body, stream))) {
      if (stream !== undefined) ended.push(soundOfStream(stream));
      stream = streamAt(bytes, body);
      open.set(serial, stream);
      if (open.size > MAX_STREAMS) throw new UnmeasurableSound();
    }
    position = takePage(bytes, page, body, stream);
  }
  return playedInTurn([...ended, ...Array.from(open.values(), soundOfStream)]);
}

function endOfPage(bytes: ByteWindow, page: number, body: number): number {
  let end = body;
  for (let at = page + HEADING_BYTES; at < body; at++) end += bytes.byte(at);
  return end;
}

/** Counts a page. Returns its end. */
function takePage(bytes: ByteWindow, page: number, body: number, stream: Stream): number {
  const { packets } = stream;
  const isContinued = (bytes.byte(page + 5) & CONTINUED) !== 0;
  let position = body;
  // If the page and the previous page contradict each other, decoders differ: one more packet counts.
  let isStart = !(isContinued && stream.isCut);
  for (let at = page + HEADING_BYTES; at < body; at++) {
    const length = bytes.byte(at);
    if (position < bytes.sizeBytes && length > 0) {
      if (isStart) packets?.begin(bytes.byte(position), bytes.byte(position + 1));
      packets?.add?.(position, length);
      stream.bytes += length;
    }
    isStart = length < FULL_SEGMENT;
    if (isStart) packets?.end?.();
    position += length;
  }
  stream.isCut = !isStart;
  const granule = bytes.littleEndian(page + 6, 6);
  if (granule !== NONE && granule > 0) {
    stream.firstGranule = Math.min(stream.firstGranule, granule);
    stream.lastGranule = Math.max(stream.lastGranule, granule);
  }
  return position;
}

function soundOfStream(stream: Stream): MeasuredSound {
  const { packets, bytes, firstGranule, lastGranule } = stream;
  if (packets === undefined) return { seconds: 0, longestSeconds: 0 };
  const { seconds, longestSeconds } = packets.sound(bytes);
  const stated = Math.max(0, lastGranule - firstGranule) / packets.rate;
  return { seconds, longestSeconds: Math.max(longestSeconds, stated) };
}

type CodecStart = readonly [magic: string, read: (bytes: ByteWindow, body: number) => Packets];

const OPUS: CodecStart = ["OpusHead", opusPackets];
const CODECS: readonly CodecStart[] = [
  OPUS,
  ["\x01vorbis", vorbisPackets],
  ["\x7fFLAC", flacPackets],
  ["Speex   ", speexPackets],
];

function codecAt(bytes: ByteWindow, body: number): CodecStart | undefined {
  return CODECS.find(([magic]) => bytes.text(body, magic.length) === magic);
}

/**
 * Returns true if another stream begins under the same number. Some decoders continue with the stream before it.
 * Only for Opus does that not change the result: throws UnmeasurableSound for other codecs.
 */
function beginsAgain(bytes: ByteWindow, body: number, { codec }: Stream): boolean {
  const next = codecAt(bytes, body);
  if (next === undefined && !isOther(bytes, body)) return false;
  if (next !== codec || codec !== OPUS) throw new UnmeasurableSound();
  return true;
}

function isOther(bytes: ByteWindow, body: number): boolean {
  return OTHERS.some((magic) => bytes.text(body, magic.length) === magic);
}

/** Returns the stream that begins here. Throws UnmeasurableSound if it can be audio of another codec. */
function streamAt(bytes: ByteWindow, body: number): Stream {
  const codec = codecAt(bytes, body);
  if (codec === undefined && !isOther(bytes, body)) throw new UnmeasurableSound();
  const granules = { firstGranule: Number.POSITIVE_INFINITY, lastGranule: 0 };
  return { codec, packets: codec?.[1](bytes, body), bytes: 0, ...granules, isCut: false };
}

/** First letters of both headers. An audio packet that begins with them would be longer than allowed. */
const OPUS_HEADING = [0x4f, 0x70] as const;

function opusPackets(bytes: ByteWindow, body: number): Packets {
  const channels = bytes.byte(body + 9);
  let samples = 0;
  return {
    rate: OPUS_RATE,
    begin(first, second) {
      if (first === OPUS_HEADING[0] && second === OPUS_HEADING[1]) return;
      samples += opusSamples(first, second);
    },
    sound(packetBytes) {
      // A file that contains only headers has no audio.
      const seconds = samples === 0 ? 0 : opusSeconds(samples, packetBytes, channels);
      return { seconds, longestSeconds: seconds };
    },
  };
}

const VORBIS_SETUP = 5;
/** "v", the second byte of a header, after its kind. */
const VORBIS_SECOND = 0x76;

function vorbisPackets(bytes: ByteWindow, body: number): Packets {
  const identification = vorbisIdentification(bytesOf(bytes, body, 30));
  const counted = new VorbisSamples(identification);
  let setup: JoinedBytes | undefined;
  return {
    rate: identification.rate,
    begin(first, second) {
      setup = undefined;
      if (first === VORBIS_SETUP && second === VORBIS_SECOND) setup = new JoinedBytes(bytes);
      else counted.takePacket(first);
    },
    add(position, length) {
      setup?.add(position, length);
      if (setup !== undefined && setup.sizeBytes > MAX_VORBIS_SETUP_BYTES) {
        throw new UnmeasurableSound();
      }
    },
    end() {
      if (setup === undefined) return;
      const heading = new Uint8Array(setup.sizeBytes);
      setup.readInto(heading, 0);
      counted.takeSetup(heading);
      setup = undefined;
    },
    sound() {
      const seconds = counted.samples / identification.rate;
      return { seconds, longestSeconds: seconds };
    },
  };
}

/**
 * Position of the stream information. A complete start of a FLAC file follows the name and the number of headers.
 */
const FLAC_STREAM_INFORMATION = 17;

function flacPackets(bytes: ByteWindow, body: number): Packets {
  const stream = flacStream(bytes, body + FLAC_STREAM_INFORMATION);
  const joined = new JoinedBytes(bytes);
  return {
    rate: stream.rate,
    begin() {},
    add: (position, length) => joined.add(position, length),
    sound(packetBytes) {
      const frames = new ByteWindow(joined);
      const seconds = flacFrameSeconds(frames, 0, frames.sizeBytes, stream.rate);
      return flacLength(seconds, packetBytes, stream);
    },
  };
}

const MAX_SPEEX_RATE = 48_000;
const NARROW_FRAME_SAMPLES = 160;

function speexPackets(bytes: ByteWindow, body: number): Packets {
  const rate = bytes.littleEndian(body + 36, 4);
  const mode = bytes.littleEndian(body + 40, 4);
  const frames = Math.max(1, bytes.littleEndian(body + 64, 4));
  if (rate === 0 || rate > MAX_SPEEX_RATE || mode > 2) throw new UnmeasurableSound();
  const frameSamples = Math.max(bytes.littleEndian(body + 56, 4), NARROW_FRAME_SAMPLES << mode);
  let packets = 0;
  return {
    rate,
    begin() {
      packets++;
    },
    sound() {
      // Two packets are headers.
      const seconds = (Math.max(0, packets - 2) * frames * frameSamples) / rate;
      return { seconds, longestSeconds: seconds };
    },
  };
}

function bytesOf(bytes: ByteWindow, start: number, length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, at) => bytes.byte(start + at));
}

/**
 * Returns true if the page's checksum is correct: CRC-32 with polynomial 0x04c11db7, highest bit first. The
 * checksum field itself counts as 0.
 */
function hasItsChecksum(bytes: ByteWindow, page: number, end: number): boolean {
  let value = 0;
  for (let position = page; position < end; position++) {
    const at = position - page;
    const byte = at >= CHECKSUM && at < CHECKSUM + 4 ? 0 : bytes.byte(position);
    value = (value << 8) ^ CHECKSUM_TABLE[(value >>> 24) ^ byte]!;
  }
  return value >>> 0 === bytes.littleEndian(page + CHECKSUM, 4);
}

const CHECKSUM_TABLE = Int32Array.from({ length: 256 }, (_, byte) => {
  let value = byte << 24;
  for (let bit = 0; bit < 8; bit++) value = value < 0 ? (value << 1) ^ 0x04c11db7 : value << 1;
  return value;
});
