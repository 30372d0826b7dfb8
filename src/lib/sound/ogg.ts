import type { ByteWindow } from "./byte-window.ts";
import { OPUS_RATE, opusSamples } from "./opus.ts";

const CAPTURE = new TextEncoder().encode("OggS");
const HEADING_BYTES = 27;
const MAX_STREAMS = 64;
const BEGINS = 2;
const FULL_SEGMENT = 255;
/** Of a granule position: none ends on the page. */
const NONE = 2 ** 48 - 1;

interface Stream {
  readonly rate: number;
  readonly isOpus: boolean;
  /** Half of the shorter block of Vorbis: what each of its packets holds at least. */
  readonly leastSamples: number;
  packets: number;
  /** Of packets of Opus, which tell their length. */
  samples: number;
  /** The highest position that a page states. */
  granule: number;
  /** The last packet goes on with the next page. */
  isCut: boolean;
}

/**
 * Ogg (RFC 3533): for Opus the samples of its packets, for Vorbis, FLAC and Speex the highest position that
 * is stated, for Vorbis at least as much as its packets hold. Streams that follow one another are added up.
 */
export function oggSeconds(bytes: ByteWindow): number {
  const open = new Map<number, Stream>();
  const ended: Stream[] = [];
  let position = 0;
  while (position + HEADING_BYTES <= bytes.sizeBytes) {
    if (bytes.text(position, 4) !== "OggS") {
      position = bytes.find(CAPTURE, position + 1);
      continue;
    }
    const serial = bytes.number(position + 14, 4);
    const body = position + HEADING_BYTES + bytes.byte(position + 26);
    if ((bytes.byte(position + 5) & BEGINS) !== 0) {
      const before = open.get(serial);
      if (before !== undefined) ended.push(before);
      open.delete(serial);
      const stream = streamAt(bytes, body);
      if (stream !== undefined && open.size + ended.length < MAX_STREAMS) open.set(serial, stream);
    }
    position = takePage(bytes, position, body, open.get(serial));
  }
  return [...ended, ...open.values()].reduce((sum, stream) => sum + secondsOf(stream), 0);
}

/** Returns where the page ends. */
function takePage(bytes: ByteWindow, page: number, body: number, stream?: Stream): number {
  let position = body;
  let isStart = stream?.isCut !== true;
  for (let at = page + HEADING_BYTES; at < body; at++) {
    const length = bytes.byte(at);
    if (stream !== undefined && isStart && length > 0 && position < bytes.sizeBytes) {
      stream.packets++;
      const isHeading = stream.packets <= 2;
      if (stream.isOpus && !isHeading) {
        stream.samples += opusSamples(bytes.byte(position), bytes.byte(position + 1));
      }
    }
    isStart = length < FULL_SEGMENT;
    position += length;
  }
  if (stream === undefined) return position;
  stream.isCut = !isStart;
  const granule = bytes.littleEndian(page + 6, 6);
  if (granule !== NONE && position <= bytes.sizeBytes) {
    stream.granule = Math.max(stream.granule, granule);
  }
  return position;
}

/** Undefined where it is no sound. */
function streamAt(bytes: ByteWindow, body: number): Stream | undefined {
  const counts = { packets: 0, samples: 0, granule: 0, isCut: false };
  const plain = { ...counts, isOpus: false, leastSamples: 0 };
  if (bytes.text(body, 8) === "OpusHead") {
    return { ...plain, isOpus: true, rate: OPUS_RATE };
  }
  if (bytes.text(body, 7) === "\x01vorbis") {
    const shorter = 1 << (bytes.byte(body + 28) & 15);
    return { ...plain, leastSamples: shorter / 2, rate: bytes.littleEndian(body + 12, 4) };
  }
  if (bytes.text(body, 5) === "\x7fFLAC")
    return { ...plain, rate: bytes.number(body + 27, 3) >> 4 };
  if (bytes.text(body, 8) === "Speex   ") {
    return { ...plain, rate: bytes.littleEndian(body + 36, 4) };
  }
  return undefined;
}

/** Three packets of Vorbis are headings, and the first one behind them gives nothing. */
const VORBIS_HEADINGS = 4;

function secondsOf({ isOpus, samples, granule, rate, packets, leastSamples }: Stream): number {
  if (rate === 0) return 0;
  if (isOpus) return samples / rate;
  return Math.max(granule, (packets - VORBIS_HEADINGS) * leastSamples) / rate;
}
