import { type ByteWindow, UnmeasurableSound } from "./byte-window.ts";
import { longestOf, type MeasuredSound, NO_SOUND } from "./measured-sound.ts";
import { packetReader, type SampleCodec, sampleCodec } from "./mp4-codecs.ts";

/** Boxes (ISO/IEC 14496-12) that contain other boxes. */
const CONTAINERS: ReadonlySet<string> = new Set([
  ...["moov", "trak", "mdia", "minf", "stbl", "edts", "mvex", "moof", "traf", "udta"],
]);
/** Boxes of a track. If a track has two of a kind, decoders use the first or the last. */
const TABLES: ReadonlySet<string> = new Set([
  ...["tkhd", "mdhd", "stsd", "stts", "stsc", "stsz", "stz2", "stco", "co64", "elst"],
]);
const MAX_TRACKS = 64;
/** A file of 25 MB cannot have more samples. */
const MAX_SAMPLES = 8_000_000;
const BASE_IS_START = 0x020000;
const EMPTY_EDIT = 0xffff_ffff;

interface Track {
  id: number;
  scale: number;
  isSound: boolean;
  codec: SampleCodec | undefined;
  /** Sum of the stated sample durations, in units of the scale. */
  ticks: number;
  samples: number;
  /** Tables of sample sizes, of samples per chunk, and of chunk positions. */
  sizes: Span | undefined;
  toChunk: Span | undefined;
  offsets: Span | undefined;
  offsetBytes: number;
  seen: Set<string>;
  /** Duration and size of a fragment's samples that do not state them. */
  defaultTicks: number;
  defaultSize: number;
  /** Samples of the track's fragments. */
  runs: Run[];
}

interface Span {
  readonly start: number;
  readonly end: number;
}

/** Consecutive samples. */
interface Run {
  readonly samples: number;
  readonly offset: number;
  readonly size: number;
  /**
   * Position of the first size, and distance of the sizes in bytes. Undefined if all samples have the same size.
   */
  readonly sizesAt?: number;
  readonly stepBytes?: number;
  /** Set for a chunk. If a chunk begins in the file, all its samples count, whatever their stated sizes. */
  readonly isChunk?: true;
}

interface FragmentState {
  /** The track of the current fragment, and the defaults of its samples. */
  fragment: Track | undefined;
  defaultTicks: number;
  defaultSize: number;
  /** Start of the fragment, and the base of its sample positions. */
  start: number;
  base: number;
  /** End of the fragment's last run. */
  nextOffset: number;
}

/**
 * Measures MP4 by its audio samples, each by its codec. If a box is longer than its parent, or a table occurs
 * twice, decoders continue at different positions: throws UnmeasurableSound. If the file is cut, samples after
 * its end do not count.
 */
export function mp4Sound(bytes: ByteWindow): MeasuredSound {
  const tracks: Track[] = [];
  const ends: number[] = [];
  const state: FragmentState = {
    ...{ fragment: undefined, defaultTicks: 0, defaultSize: 0, start: 0, base: 0, nextOffset: 0 },
  };
  for (let position = 0; position + 8 <= bytes.sizeBytes; ) {
    while (ends.length > 0 && position >= ends.at(-1)!) ends.pop();
    const parentEnd = ends.at(-1);
    if (parentEnd !== undefined && position + 8 > parentEnd) {
      position = parentEnd;
      continue;
    }
    let size = bytes.number(position, 4);
    const name = bytes.text(position + 4, 4);
    let heading = 8;
    if (size === 1) {
      size = bytes.number(position + 8, 2) > 0 ? bytes.sizeBytes : bytes.number(position + 10, 6);
      heading = 16;
    }
    if (size === 0) size = (parentEnd ?? bytes.sizeBytes) - position;
    if (size < heading) throw new UnmeasurableSound();
    const start = position + heading;
    const end = position + size;
    if (end > (parentEnd ?? Number.POSITIVE_INFINITY) || name === "cmov") {
      throw new UnmeasurableSound();
    }
    if (name === "trak") tracks.push(newTrack());
    if (tracks.length > MAX_TRACKS) throw new UnmeasurableSound();
    if (name === "moof") state.start = position;
    takeBox(bytes, name, { start, end: Math.min(end, bytes.sizeBytes) }, tracks, state);
    if (CONTAINERS.has(name)) ends.push(end);
    position = CONTAINERS.has(name) ? start : end;
  }
  return longestOf(tracks.filter(({ isSound }) => isSound).map((track) => soundOf(bytes, track)));
}

function newTrack(): Track {
  return {
    ...{ id: 0, scale: 0, isSound: false, codec: undefined, ticks: 0, samples: 0 },
    ...{ sizes: undefined, toChunk: undefined, offsets: undefined, offsetBytes: 4 },
    ...{ seen: new Set(), defaultTicks: 0, defaultSize: 0, runs: [] },
  };
}

function takeBox(
  bytes: ByteWindow,
  name: string,
  span: Span,
  tracks: readonly Track[],
  state: FragmentState,
): void {
  const { start } = span;
  const track = tracks.at(-1);
  const isLong = bytes.byte(start) === 1;
  if (name === "trex") takeDefaults(bytes, start, tracks);
  else if (name === "tfhd") takeFragment(bytes, start, tracks, state);
  else if (name === "trun") takeRun(bytes, span, state);
  else if (track === undefined) return;
  if (TABLES.has(name)) {
    const kind = name === "stz2" ? "stsz" : name === "co64" ? "stco" : name;
    if (track!.seen.has(kind)) throw new UnmeasurableSound();
    track!.seen.add(kind);
    takeTable(bytes, name, span, track!);
  } else if (name === "hdlr") track!.isSound ||= bytes.text(start + 8, 4) === "soun";
  if (name === "tkhd") track!.id = bytes.number(start + (isLong ? 20 : 12), 4);
  if (name === "mdhd") track!.scale = bytes.number(start + (isLong ? 20 : 12), 4);
}

function takeTable(bytes: ByteWindow, name: string, span: Span, track: Track): void {
  const { start } = span;
  if (name === "stsd") track.codec = sampleCodec(bytes, span.start, span.end);
  else if (name === "stts") track.ticks += ticksOf(bytes, span);
  else if (name === "stsc") track.toChunk = span;
  else if (name === "stsz" || name === "stz2") {
    track.samples = bytes.number(start + 8, 4);
    track.sizes = span;
    // Audio does not use sizes with fewer than 8 bits.
    if (name === "stz2" && track.samples > 0) throw new UnmeasurableSound();
  } else if (name === "stco" || name === "co64") {
    track.offsets = span;
    track.offsetBytes = name === "co64" ? 8 : 4;
  } else if (name === "elst") assertPlaysOnce(bytes, span);
}

/** Throws UnmeasurableSound if the edit list has a second entry, which can play the same samples again. */
function assertPlaysOnce(bytes: ByteWindow, span: Span): void {
  const isLong = bytes.byte(span.start) === 1;
  const rows = rowCount(bytes, span, isLong ? 20 : 12);
  let played = 0;
  for (let row = 0; row < rows; row++) {
    const at = span.start + 8 + row * (isLong ? 20 : 12);
    const mediaTime = isLong ? bytes.number(at + 8, 4) : bytes.number(at + 4, 4);
    if (mediaTime !== EMPTY_EDIT) played++;
  }
  if (played > 1) throw new UnmeasurableSound();
}

/** Returns the number of rows of a table with `rowBytes` per row. */
function rowCount(bytes: ByteWindow, { start, end }: Span, rowBytes: number): number {
  const present = Math.max(0, Math.floor((end - start - 8) / rowBytes));
  return Math.min(bytes.number(start + 4, 4), present);
}

function ticksOf(bytes: ByteWindow, times: Span): number {
  const rows = rowCount(bytes, times, 8);
  let ticks = 0;
  for (let at = times.start + 8, row = 0; row < rows; row++, at += 8) {
    ticks += bytes.number(at, 4) * bytes.number(at + 4, 4);
  }
  return ticks;
}

function takeDefaults(bytes: ByteWindow, start: number, tracks: readonly Track[]): void {
  const id = bytes.number(start + 4, 4);
  for (const track of tracks) {
    if (track.id !== id) continue;
    track.defaultTicks = bytes.number(start + 12, 4);
    track.defaultSize = bytes.number(start + 16, 4);
  }
}

function takeFragment(
  bytes: ByteWindow,
  start: number,
  tracks: readonly Track[],
  state: FragmentState,
): void {
  const flags = bytes.number(start + 1, 3);
  const id = bytes.number(start + 4, 4);
  const ofId = tracks.filter((track) => track.id === id);
  if (ofId.length > 1) throw new UnmeasurableSound();
  state.fragment = ofId[0];
  let at = start + 8;
  const isFromStart = (flags & BASE_IS_START) !== 0;
  // Without a base, the samples follow the samples of the previous fragment. A lower base counts more of them.
  state.base = isFromStart ? state.start : Math.min(state.start, state.nextOffset);
  if (flags & 1) {
    state.base = bytes.number(at + 2, 6);
    at += 8;
  }
  if (flags & 2) at += 4;
  state.defaultTicks = state.fragment?.defaultTicks ?? 0;
  state.defaultSize = state.fragment?.defaultSize ?? 0;
  if (flags & 8) {
    state.defaultTicks = bytes.number(at, 4);
    at += 4;
  }
  if (flags & 16) state.defaultSize = bytes.number(at, 4);
  state.nextOffset = state.base;
}

function takeRun(bytes: ByteWindow, { start, end }: Span, state: FragmentState): void {
  const track = state.fragment;
  if (track === undefined) return;
  const flags = bytes.number(start + 1, 3);
  const count = bytes.number(start + 4, 4);
  const offset = flags & 1 ? state.base + (bytes.number(start + 8, 4) | 0) : state.nextOffset;
  const entries = start + 8 + (flags & 1 ? 4 : 0) + (flags & 4 ? 4 : 0);
  const stepBytes = [0x100, 0x200, 0x400, 0x800].filter((flag) => flags & flag).length * 4;
  const present = stepBytes === 0 ? count : Math.floor((end - entries) / stepBytes);
  const samples = Math.max(0, Math.min(count, present));
  const hasTicks = (flags & 0x100) !== 0;
  const hasSizes = (flags & 0x200) !== 0;
  if (samples > MAX_SAMPLES || track.runs.length >= MAX_SAMPLES) throw new UnmeasurableSound();
  track.ticks += hasTicks ? 0 : samples * state.defaultTicks;
  let bytesOfRun = hasSizes ? 0 : samples * state.defaultSize;
  const sizesAt = entries + (hasTicks ? 4 : 0);
  if (hasTicks || hasSizes) {
    for (let at = 0; at < samples; at++) {
      if (hasTicks) track.ticks += bytes.number(entries + at * stepBytes, 4);
      if (hasSizes) bytesOfRun += bytes.number(sizesAt + at * stepBytes, 4);
    }
  }
  state.nextOffset = offset + bytesOfRun;
  track.runs.push({
    ...{ samples, offset, size: state.defaultSize },
    ...(hasSizes && { sizesAt, stepBytes }),
  });
}

function soundOf(bytes: ByteWindow, track: Track): MeasuredSound {
  const { codec, ticks, scale } = track;
  if (codec === undefined) {
    if (track.seen.has("stsd")) throw new UnmeasurableSound();
    return NO_SOUND;
  }
  const reader = packetReader(codec);
  const content = bytes.again();
  let count = 0;
  const take = (position: number, size: number) => {
    if (size === 0) return;
    if (++count > MAX_SAMPLES) throw new UnmeasurableSound();
    reader.take(content, position, Math.max(position, Math.min(position + size, bytes.sizeBytes)));
  };
  for (const run of runsOf(bytes, track)) takeRunOfSamples(bytes, run, take);
  const { seconds, longestSeconds } = reader.sound();
  const stated = scale === 0 || seconds === 0 ? 0 : ticks / scale;
  return { seconds, longestSeconds: Math.max(longestSeconds, stated) };
}

function takeRunOfSamples(
  bytes: ByteWindow,
  { samples, offset, size, sizesAt, stepBytes = 4, isChunk }: Run,
  take: (position: number, size: number) => void,
): void {
  let position = offset;
  for (let at = 0; at < samples; at++) {
    // Samples after the end of the file do not exist.
    if (position >= bytes.sizeBytes && (at === 0 || !isChunk)) return;
    const length = sizesAt === undefined ? size : bytes.number(sizesAt + at * stepBytes, 4);
    if (position >= 0) take(position, length);
    if (length === 0 && sizesAt === undefined) return;
    position += length;
  }
}

/** Yields the chunks of a track, then the runs of its fragments. */
function* runsOf(bytes: ByteWindow, track: Track): Generator<Run> {
  const { toChunk, offsets, offsetBytes, sizes, samples, runs } = track;
  if (toChunk !== undefined && offsets !== undefined && sizes !== undefined && samples > 0) {
    const chunkTable = bytes.again();
    const offsetTable = bytes.again();
    const equalSize = bytes.number(sizes.start + 4, 4);
    const listed = equalSize > 0 ? samples : Math.min(samples, rowCountOfSizes(sizes));
    const rows = rowCount(bytes, toChunk, 12);
    const chunks = rowCount(bytes, offsets, offsetBytes);
    let perChunk = 0;
    let first = 0;
    for (let chunk = 1, row = 0; chunk <= chunks && first < listed; chunk++) {
      const at = toChunk.start + 8;
      while (row < rows && chunkTable.number(at + row * 12, 4) <= chunk) {
        perChunk = chunkTable.number(at + row++ * 12 + 4, 4);
      }
      const entry = offsets.start + 8 + (chunk - 1) * offsetBytes;
      const offset = offsetTable.number(entry + (offsetBytes - 4), 4);
      const count = Math.min(perChunk, listed - first);
      yield {
        ...{ samples: count, offset, size: equalSize, isChunk: true },
        ...(equalSize === 0 && { sizesAt: sizes.start + 12 + first * 4 }),
      };
      first += count;
    }
  }
  yield* runs;
}

function rowCountOfSizes({ start, end }: Span): number {
  return Math.max(0, Math.floor((end - start - 12) / 4));
}
