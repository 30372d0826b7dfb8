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
/** Of a granule position: none ends on the page. */
const NONE = 2 ** 48 - 1;
/** Bytes of pages whose checksum is wrong are read again; a file of nothing but such pages is none. */
const MAX_CHECKED_PART = 3;
/** Streams that are no sound, by their beginnings: pictures, texts and what describes the others. */
const OTHERS = ["\x80theora", "fishead", "fisbone", "\x80kate", "BBCD", "OVP80"];

/** What a stream of one codec counts. */
interface Packets {
  /** Samples a second of its granule positions. */
  readonly rate: number;
  /** Takes the beginning of a packet. */
  begin(first: number, second: number): void;
  /** Takes where a part of the packet is. */
  add?(position: number, length: number): void;
  end?(): void;
  /** Seconds of the packets, which have so many bytes. */
  sound(bytes: number): MeasuredSound;
}

interface Stream {
  /** Undefined if the stream is no sound. */
  readonly codec: CodecStart | undefined;
  readonly packets: Packets | undefined;
  bytes: number;
  /** The lowest and the highest position that pages state. */
  firstGranule: number;
  lastGranule: number;
  /** The last packet continues on the next page. */
  isCut: boolean;
}

/**
 * Ogg (RFC 3533), by its packets. Streams that follow one another are added up. Some decoders skip pages with a wrong
 * checksum, others play them: the longer of both counts. Throws UnmeasurableSound if a stream's codec has no bound.
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

/** Returns where the page ends. */
function takePage(bytes: ByteWindow, page: number, body: number, stream: Stream): number {
  const { packets } = stream;
  const isContinued = (bytes.byte(page + 5) & CONTINUED) !== 0;
  let position = body;
  // If the page and the one before it contradict each other, decoders differ: a packet more counts.
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
 * Whether another stream begins under the same number. Some decoders go on with the stream before it, which makes a
 * difference for all codecs but Opus: throws UnmeasurableSound for these.
 */
function beginsAgain(bytes: ByteWindow, body: number, { codec }: Stream): boolean {
  const found = codecAt(bytes, body);
  if (found === undefined && !isOther(bytes, body)) return false;
  if (found !== codec || codec !== OPUS) throw new UnmeasurableSound();
  return true;
}

function isOther(bytes: ByteWindow, body: number): boolean {
  return OTHERS.some((magic) => bytes.text(body, magic.length) === magic);
}

/** Throws UnmeasurableSound if it may be sound of another codec. */
function streamAt(bytes: ByteWindow, body: number): Stream {
  const codec = codecAt(bytes, body);
  if (codec === undefined && !isOther(bytes, body)) throw new UnmeasurableSound();
  const granules = { firstGranule: Number.POSITIVE_INFINITY, lastGranule: 0 };
  return { codec, packets: codec?.[1](bytes, body), bytes: 0, ...granules, isCut: false };
}

/** Both headings begin with these letters, which as packets would be longer than any may be. */
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
      // A file of nothing but headings has no sound.
      const seconds = samples === 0 ? 0 : opusSeconds(samples, packetBytes, channels);
      return { seconds, longestSeconds: seconds };
    },
  };
}

const VORBIS_SETUP = 5;
/** "vo", after the kind of a heading. */
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

/** After the name and the number of headings comes a whole FLAC's beginning. */
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
      // Two packets are headings.
      const seconds = (Math.max(0, packets - 2) * frames * frameSamples) / rate;
      return { seconds, longestSeconds: seconds };
    },
  };
}

function bytesOf(bytes: ByteWindow, start: number, length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, at) => bytes.byte(start + at));
}

/** CRC-32 of polynomial 0x04c11db7, from the highest bit on, of a page whose own checksum counts as 0. */
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
