import { type AacForm, aacForm, aacSound } from "./aac.ts";
import { type ByteWindow, UnmeasurableSound } from "./byte-window.ts";
import { flacFrameSeconds, flacLength, flacStream } from "./flac.ts";
import { blockFrames, numberAt } from "./matroska-block.ts";
import { longestOf, type MeasuredSound } from "./measured-sound.ts";
import { mpegSoundIn } from "./mpeg.ts";
import { opusSamples, opusSeconds } from "./opus.ts";
import { MAX_VORBIS_SETUP_BYTES, VorbisSamples, vorbisIdentification } from "./vorbis.ts";

/** Element ids (RFC 9559). */
const EBML = 0x1a45dfa3;
const SEGMENT = 0x18538067;
const CLUSTER = 0x1f43b675;
const CLUSTER_ID = new Uint8Array([0x1f, 0x43, 0xb6, 0x75]);
const INFO = 0x1549a966;
const TRACKS = 0x1654ae6b;
const TRACK_ENTRY = 0xae;
const SOUND_SETTINGS = 0xe1;
const BLOCK_GROUP = 0xa0;
const TIMESTAMP_SCALE = 0x2ad7b1;
const TRACK_NUMBER = 0xd7;
const TRACK_TYPE = 0x83;
const CODEC_ID = 0x86;
const CODEC_PRIVATE = 0x63a2;
const ENCODINGS = 0x6d80;
const SAMPLE_RATE = 0xb5;
const CHANNELS = 0x9f;
const BIT_DEPTH = 0x6264;
const TIMESTAMP = 0xe7;
const SIMPLE_BLOCK = 0xa3;
const BLOCK = 0xa1;
const ENCRYPTED_BLOCK = 0xaf;
const VOID = 0xec;
const CHECKSUM = 0xbf;
const MASTERS: ReadonlySet<number> = new Set([
  ...[SEGMENT, CLUSTER, INFO, TRACKS, TRACK_ENTRY, SOUND_SETTINGS, BLOCK_GROUP],
]);
/** Seek head, info, tracks, cluster, cues, attachments, chapters, tags, and padding. */
const IN_SEGMENT: ReadonlySet<number> = new Set([
  ...[0x114d9b74, INFO, TRACKS, CLUSTER, 0x1c53bb6b, 0x1941a469, 0x1043a770, 0x1254c367],
  ...[VOID, CHECKSUM],
]);
/** Timestamp, blocks, silent tracks, position, size of the previous cluster. */
const IN_CLUSTER: ReadonlySet<number> = new Set([
  ...[TIMESTAMP, SIMPLE_BLOCK, BLOCK_GROUP, 0x5854, 0xa7, 0xab, VOID, CHECKSUM],
]);

const AUDIO = 2;
const MAX_TRACKS = 64;
const MAX_CODEC_CHARACTERS = 32;
const DEFAULT_SCALE_NS = 1_000_000;
const NS_PER_SECOND = 1e9;
const UNKNOWN = Number.POSITIVE_INFINITY;

interface Track {
  number: number;
  type: number;
  codec: string;
  isEncoded: boolean;
  rate: number;
  channels: number;
  bits: number;
  /** Position of the codec's headers. */
  headings: { readonly start: number; readonly bytes: number } | undefined;
  counter: PacketCounter | undefined;
  firstNs: number;
  lastNs: number;
}

interface PacketCounter {
  take(bytes: ByteWindow, start: number, end: number): void;
  sound(): MeasuredSound;
}

interface Element {
  readonly id: number;
  readonly end: number;
}

/**
 * Measures Matroska and WebM by the packets in their blocks. If an element is misplaced, or longer than its
 * parent, decoders continue at different positions: throws UnmeasurableSound. Only the end of the file can be
 * cut.
 */
export function matroskaSound(bytes: ByteWindow): MeasuredSound {
  const tracks: Track[] = [];
  const open: Element[] = [];
  let scaleNs = DEFAULT_SCALE_NS;
  let timestamp = 0;
  for (let position = 0; position < bytes.sizeBytes; ) {
    const idLength = Math.clz32(bytes.byte(position)) - 23;
    const id = idLength > 4 ? 0 : bytes.number(position, idLength);
    const size = numberAt(bytes, position + idLength);
    if (id === 0 || size.length === 0) throw new UnmeasurableSound();
    const start = position + idLength + size.length;
    const end = size.isUnknown ? UNKNOWN : start + size.value;
    while (open.length > 0 && closes(open.at(-1)!, id, position)) open.pop();
    const parent = open.at(-1);
    assertBelongs(bytes, { id, end }, parent, start);
    const number = () => bytes.number(start, Math.min(6, size.value));
    if (id === TRACK_ENTRY) tracks.push(newTrack());
    if (tracks.length > MAX_TRACKS) throw new UnmeasurableSound();
    if (id === TIMESTAMP_SCALE) scaleNs = number() || DEFAULT_SCALE_NS;
    else if (id === TIMESTAMP && parent?.id === CLUSTER) timestamp = number();
    else if (id === ENCRYPTED_BLOCK) throw new UnmeasurableSound();
    else if (id === SIMPLE_BLOCK || id === BLOCK) {
      takeBlock(bytes, { start, end: Math.min(end, bytes.sizeBytes) }, tracks, {
        timestamp,
        scaleNs,
      });
    } else if (tracks.length > 0) {
      takeSetting(bytes, tracks.at(-1)!, { id, parent, start, length: size.value });
    }
    if (MASTERS.has(id)) open.push({ id, end });
    position = MASTERS.has(id) ? start : end;
  }
  return longestOf(tracks.filter(({ type }) => type === AUDIO).map(soundOf));
}

/**
 * Returns true if an element ends before the next one. An element of unknown size ends at the next element of its
 * own level or above.
 */
function closes({ id, end }: Element, next: number, position: number): boolean {
  if (end !== UNKNOWN) return position >= end;
  if (next === EBML || next === SEGMENT) return true;
  return id === CLUSTER && IN_SEGMENT.has(next) && !IN_CLUSTER.has(next);
}

function assertBelongs(
  bytes: ByteWindow,
  { id, end }: Element,
  parent: Element | undefined,
  start: number,
): void {
  const belongs =
    parent === undefined
      ? id === EBML || id === SEGMENT || id === VOID
      : parent.id === SEGMENT
        ? IN_SEGMENT.has(id)
        : parent.id === CLUSTER
          ? IN_CLUSTER.has(id)
          : !MASTERS.has(id) || id === TRACK_ENTRY || id === SOUND_SETTINGS;
  const isOpenEnded = end === UNKNOWN && id !== SEGMENT && id !== CLUSTER;
  // If the file is cut, all open elements end after it.
  const isLonger = end > (parent?.end ?? UNKNOWN) && end !== UNKNOWN;
  if (!belongs || isOpenEnded || isLonger) throw new UnmeasurableSound();
  if (
    end > bytes.sizeBytes &&
    !MASTERS.has(id) &&
    bytes.find(CLUSTER_ID, start) < bytes.sizeBytes
  ) {
    throw new UnmeasurableSound();
  }
}

function newTrack(): Track {
  return {
    ...{ number: 0, type: 0, codec: "", isEncoded: false, rate: 8_000, channels: 1, bits: 0 },
    ...{ headings: undefined, counter: undefined },
    ...{ firstNs: Number.POSITIVE_INFINITY, lastNs: 0 },
  };
}

interface Setting {
  readonly id: number;
  readonly parent: Element | undefined;
  readonly start: number;
  readonly length: number;
}

function takeSetting(
  bytes: ByteWindow,
  track: Track,
  { id, parent, start, length }: Setting,
): void {
  const number = () => bytes.number(start, Math.min(6, length));
  if (parent?.id === TRACK_ENTRY) {
    if (id === TRACK_NUMBER) track.number = number();
    else if (id === TRACK_TYPE) track.type = number();
    else if (id === ENCODINGS) track.isEncoded = true;
    else if (id === CODEC_PRIVATE) track.headings = { start, bytes: length };
    else if (id === CODEC_ID) {
      track.codec = bytes.text(start, Math.min(length, MAX_CODEC_CHARACTERS)).replace(/\0.*/, "");
    }
  } else if (parent?.id === SOUND_SETTINGS) {
    if (id === CHANNELS) track.channels = number();
    else if (id === BIT_DEPTH) track.bits = number();
    else if (id === SAMPLE_RATE) track.rate = floatAt(bytes, start, length);
  }
}

function floatAt(bytes: ByteWindow, start: number, length: number): number {
  const view = new DataView(new ArrayBuffer(8));
  for (let at = 0; at < length && at < 8; at++) view.setUint8(at, bytes.byte(start + at));
  return length === 8 ? view.getFloat64(0) : view.getFloat32(0);
}

function takeBlock(
  bytes: ByteWindow,
  { start, end }: { readonly start: number; readonly end: number },
  tracks: readonly Track[],
  { timestamp, scaleNs }: { readonly timestamp: number; readonly scaleNs: number },
): void {
  const number = numberAt(bytes, start);
  const ofNumber = tracks.filter((track) => track.number === number.value);
  // If there are two tracks of a number, decoders use the first or the last.
  if (ofNumber.length > 1) throw new UnmeasurableSound();
  const [track] = ofNumber;
  if (track?.type !== AUDIO) return;
  const at = start + number.length;
  const relative = (bytes.number(at, 2) << 16) >> 16;
  const ns = (timestamp + relative) * scaleNs;
  track.firstNs = Math.min(track.firstNs, ns);
  track.lastNs = Math.max(track.lastNs, ns);
  track.counter ??= counterOf(bytes, track);
  for (const frame of blockFrames(bytes, at + 2, end)) {
    track.counter.take(bytes, frame.start, frame.end);
  }
}

function soundOf({ counter, firstNs, lastNs }: Track): MeasuredSound {
  const { seconds = 0, longestSeconds = 0 } = counter?.sound() ?? {};
  const stated = Math.max(0, lastNs - firstNs) / NS_PER_SECOND;
  return { seconds, longestSeconds: Math.max(longestSeconds, stated) };
}

/**
 * Returns the packet counter of a track. Throws UnmeasurableSound if the codec's packets have no known length.
 */
function counterOf(bytes: ByteWindow, track: Track): PacketCounter {
  const { codec, isEncoded, headings, channels } = track;
  if (isEncoded) throw new UnmeasurableSound();
  if (codec === "A_OPUS") return opusCounter(channels);
  if (/^A_MPEG\/L[123]$/.test(codec)) return mpegCounter();
  if (codec.startsWith("A_AAC")) return aacCounter(aacFormOf(bytes, track));
  if (codec === "A_FLAC" && headings !== undefined) return flacCounter(bytes, headings.start);
  if (codec === "A_VORBIS" && headings !== undefined) return vorbisCounter(bytes, headings);
  if (/^A_PCM\//.test(codec)) return pcmCounter(track);
  throw new UnmeasurableSound();
}

function opusCounter(channels: number): PacketCounter {
  let samples = 0;
  let size = 0;
  return {
    take(bytes, start, end) {
      samples += opusSamples(bytes.byte(start), bytes.byte(start + 1));
      size += end - start;
    },
    sound() {
      const seconds = opusSeconds(samples, size, channels);
      return { seconds, longestSeconds: seconds };
    },
  };
}

function mpegCounter(): PacketCounter {
  let seconds = 0;
  return {
    take(bytes, start, end) {
      seconds += mpegSoundIn(bytes, start, end).seconds;
    },
    sound: () => ({ seconds, longestSeconds: seconds }),
  };
}

const MAX_AAC_CONFIGURATION_BYTES = 64;

function aacFormOf(bytes: ByteWindow, { headings, codec, rate, channels }: Track): AacForm {
  if (headings !== undefined) {
    return aacForm(
      read(bytes, headings.start, Math.min(headings.bytes, MAX_AAC_CONFIGURATION_BYTES)),
    );
  }
  // The older form has the configuration in the codec's name. With SBR, the track states the rate of the frames.
  if (!/^A_AAC\/MPEG[24]\//.test(codec) || !(rate > 0)) throw new UnmeasurableSound();
  return { rate, frameSamples: 1_024, channels };
}

function aacCounter(form: AacForm): PacketCounter {
  let frames = 0;
  let size = 0;
  return {
    take(_bytes, start, end) {
      frames++;
      size += end - start;
    },
    sound: () => aacSound(frames, size, form),
  };
}

function flacCounter(bytes: ByteWindow, headings: number): PacketCounter {
  // The block follows the format's marker and the header of the first block.
  const stream = flacStream(bytes, headings + 8);
  let seconds = 0;
  let size = 0;
  return {
    take(window, start, end) {
      seconds += flacFrameSeconds(window, start, end, stream.rate);
      size += end - start;
    },
    sound: () => flacLength(seconds, size, stream),
  };
}

/**
 * Returns the counter of a Vorbis track. Its three headers are laced: their number less one, the sizes of the
 * first two, and the headers.
 */
function vorbisCounter(bytes: ByteWindow, headings: NonNullable<Track["headings"]>): PacketCounter {
  let at = headings.start;
  if (bytes.byte(at++) !== 2) throw new UnmeasurableSound();
  const sizes = [0, 0];
  for (let header = 0; header < 2; header++) {
    let byte: number;
    do {
      byte = bytes.byte(at++);
      sizes[header]! += byte;
    } while (byte === 255);
  }
  const setup = at + sizes[0]! + sizes[1]!;
  const setupBytes = headings.start + headings.bytes - setup;
  if (setupBytes <= 0 || setupBytes > MAX_VORBIS_SETUP_BYTES) throw new UnmeasurableSound();
  const identification = vorbisIdentification(read(bytes, at, 30));
  const counted = new VorbisSamples(identification);
  counted.takeSetup(read(bytes, setup, setupBytes));
  return {
    take: (window, start) => counted.takePacket(window.byte(start)),
    sound() {
      const seconds = counted.samples / identification.rate;
      return { seconds, longestSeconds: seconds };
    },
  };
}

function pcmCounter({ rate, channels, bits }: Track): PacketCounter {
  const bytesASecond = rate * channels * Math.ceil(bits / 8);
  if (!(bytesASecond > 0)) throw new UnmeasurableSound();
  let size = 0;
  return {
    take(_bytes, start, end) {
      size += end - start;
    },
    sound: () => ({ seconds: size / bytesASecond, longestSeconds: size / bytesASecond }),
  };
}

function read(bytes: ByteWindow, start: number, length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, at) => bytes.byte(start + at));
}
