import type { ByteWindow } from "./byte-window.ts";
import { OPUS_RATE, opusSamples } from "./opus.ts";

/** Elements (RFC 9559), by their ids. */
const SEGMENT = 0x18538067;
const CLUSTER = 0x1f43b675;
const CLUSTER_ID = new Uint8Array([0x1f, 0x43, 0xb6, 0x75]);
const INFO = 0x1549a966;
const TRACKS = 0x1654ae6b;
const TRACK_ENTRY = 0xae;
const BLOCK_GROUP = 0xa0;
const TIMESTAMP_SCALE = 0x2ad7b1;
const TRACK_NUMBER = 0xd7;
const TRACK_TYPE = 0x83;
const CODEC_ID = 0x86;
const TIMESTAMP = 0xe7;
const SIMPLE_BLOCK = 0xa3;
const BLOCK = 0xa1;
const MASTERS: ReadonlySet<number> = new Set([
  SEGMENT,
  CLUSTER,
  INFO,
  TRACKS,
  TRACK_ENTRY,
  BLOCK_GROUP,
]);

const AUDIO = 2;
const MAX_TRACKS = 64;
const MAX_CODEC_CHARACTERS = 32;
const DEFAULT_SCALE_NS = 1_000_000;
const NS_PER_SECOND = 1e9;
const LACED = 0x06;

interface Track {
  number: number;
  type: number;
  codec: string;
  /** Of packets of Opus. */
  samples: number;
  blocks: number;
  firstNs: number | undefined;
  lastNs: number;
}

/**
 * Matroska and WebM: from the first to the last block of sound, and for Opus at least what its packets hold.
 * Clusters may be open-ended, as in live recordings, so that elements are read one behind the other.
 */
export function matroskaSeconds(bytes: ByteWindow): number {
  const tracks: Track[] = [];
  let scaleNs = DEFAULT_SCALE_NS;
  let timestamp = 0;
  for (let position = 0; position < bytes.sizeBytes; ) {
    const id = idAt(bytes, position);
    const size = sizeAt(bytes, position + id.length);
    if (id.length === 0 || size.length === 0) {
      // As players do, which find the next cluster.
      position = bytes.find(CLUSTER_ID, position + 1);
      continue;
    }
    const start = position + id.length + size.length;
    const { value } = id;
    if (value === TRACK_ENTRY && tracks.length < MAX_TRACKS) tracks.push(newTrack());
    const track = tracks.at(-1);
    const number = () => bytes.number(start, Math.min(6, size.value));
    if (value === TIMESTAMP_SCALE) scaleNs = number() || DEFAULT_SCALE_NS;
    else if (value === TIMESTAMP) timestamp = number();
    else if (value === TRACK_NUMBER && track !== undefined) track.number = number();
    else if (value === TRACK_TYPE && track !== undefined) track.type = number();
    else if (value === CODEC_ID && track !== undefined) {
      track.codec = bytes.text(start, Math.min(size.value, MAX_CODEC_CHARACTERS));
    } else if (value === SIMPLE_BLOCK || value === BLOCK) {
      takeBlock(bytes, start, { tracks, timestamp, scaleNs });
    }
    const end = start + size.value;
    if (MASTERS.has(value)) position = start;
    else position = end <= bytes.sizeBytes ? end : bytes.find(CLUSTER_ID, start);
  }
  return Math.max(0, ...tracks.filter(({ type }) => type === AUDIO).map(secondsOf));
}

function newTrack(): Track {
  return { number: 0, type: 0, codec: "", samples: 0, blocks: 0, firstNs: undefined, lastNs: 0 };
}

interface Place {
  readonly tracks: readonly Track[];
  readonly timestamp: number;
  readonly scaleNs: number;
}

function takeBlock(bytes: ByteWindow, start: number, { tracks, timestamp, scaleNs }: Place): void {
  const number = sizeAt(bytes, start);
  const track = tracks.find((one) => one.number === number.value && one.type === AUDIO);
  if (track === undefined || number.length === 0) return;
  const at = start + number.length;
  const relative = (bytes.number(at, 2) << 16) >> 16;
  const flags = bytes.byte(at + 2);
  const ns = (timestamp + relative) * scaleNs;
  track.firstNs = Math.min(track.firstNs ?? ns, ns);
  track.lastNs = Math.max(track.lastNs, ns);
  const frames = (flags & LACED) === 0 ? 1 : bytes.byte(at + 3) + 1;
  track.blocks += frames;
  if (track.codec.startsWith("A_OPUS") && frames === 1) {
    track.samples += opusSamples(bytes.byte(at + 3), bytes.byte(at + 4));
  }
}

/** What a block holds at least, in samples of 48 kHz: of AAC and Vorbis those of the highest rates. */
const LEAST_OF_BLOCK: readonly (readonly [codec: string, samples: number])[] = [
  ["A_AAC", 512],
  ["A_MPEG/L3", 576],
  ["A_VORBIS", 32],
  ["A_OPUS", 120],
];

function secondsOf({ codec, samples, blocks, firstNs, lastNs }: Track): number {
  if (firstNs === undefined) return 0;
  const between = (lastNs - firstNs) / NS_PER_SECOND;
  // The last block plays as long as the others do.
  const last = blocks > 1 ? between / (blocks - 1) : 0;
  const [, least = 0] = LEAST_OF_BLOCK.find(([name]) => codec.startsWith(name)) ?? [];
  return Math.max(between + last, Math.max(samples, blocks * least) / OPUS_RATE);
}

interface Read {
  readonly value: number;
  /** In bytes; 0 where there is none. */
  readonly length: number;
}

function idAt(bytes: ByteWindow, position: number): Read {
  const length = Math.clz32(bytes.byte(position)) - 23;
  return length > 4 ? { value: 0, length: 0 } : { value: bytes.number(position, length), length };
}

/** A number of variable length (RFC 8794, section 4). One of unknown size reads as the largest. */
function sizeAt(bytes: ByteWindow, position: number): Read {
  const first = bytes.byte(position);
  const length = Math.clz32(first) - 23;
  if (length > 8) return { value: 0, length: 0 };
  let value = first & (0xff >> length);
  for (let at = 1; at < length; at++) value = value * 256 + bytes.byte(position + at);
  return { value, length };
}
