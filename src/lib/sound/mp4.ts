import type { ByteWindow } from "./byte-window.ts";

/** Boxes (ISO/IEC 14496-12) that hold others. */
const CONTAINERS: ReadonlySet<string> = new Set([
  "moov",
  "trak",
  "mdia",
  "minf",
  "stbl",
  "mvex",
  "moof",
  "traf",
]);
const AAC_SAMPLES = 1_024;
const MAX_TRACKS = 64;
const BASE_IS_START = 0x020000;
/** What the heading of AAC states at most, and takes for what it cannot say. */
const MAX_STATED_RATE = 48_000;

interface Track {
  id: number;
  scale: number;
  isSound: boolean;
  codec: string;
  rate: number;
  /** Of the samples of its fragments, in units of its scale. */
  runTicks: number;
  runSamples: number;
  /** Besides fragments. */
  samples: number;
  /** Tables: how long samples last, how many of them a chunk has, and where chunks begin. */
  times: Span | undefined;
  toChunk: Span | undefined;
  offsets: Span | undefined;
  offsetBytes: number;
  /** Of a fragment's samples where it states none. */
  defaultTicks: number;
}

/**
 * MP4: the durations of the samples of its sound, and for AAC at least what so many of them hold. Of a file that
 * is cut, samples whose chunk begins behind its end do not count.
 */
export function mp4Seconds(bytes: ByteWindow): number {
  const tracks: Track[] = [];
  const state: FragmentState = { fragment: undefined, defaultTicks: 0, start: 0, base: undefined };
  for (let position = 0; position + 8 <= bytes.sizeBytes; ) {
    let size = bytes.number(position, 4);
    const name = bytes.text(position + 4, 4);
    let heading = 8;
    if (size === 1) {
      size = bytes.number(position + 10, 6);
      heading = 16;
    }
    if (size === 0) size = bytes.sizeBytes - position;
    if (size < heading) break;
    const start = position + heading;
    const end = Math.min(position + size, bytes.sizeBytes);
    if (name === "trak" && tracks.length < MAX_TRACKS) tracks.push(newTrack());
    if (name === "moof") state.start = position;
    takeBox(bytes, name, { start, end }, tracks, state);
    position = CONTAINERS.has(name) ? start : position + size;
  }
  const sounds = tracks.filter(({ isSound }) => isSound);
  return Math.max(0, ...sounds.map((track) => secondsOf(bytes, track)));
}

function newTrack(): Track {
  return {
    ...{ id: 0, scale: 0, isSound: false, codec: "", rate: 0 },
    ...{ runTicks: 0, runSamples: 0, samples: 0, defaultTicks: 0 },
    ...{ times: undefined, toChunk: undefined, offsets: undefined, offsetBytes: 4 },
  };
}

interface Span {
  readonly start: number;
  readonly end: number;
}

interface FragmentState {
  /** The track of the fragment that is being read, and what its samples last unless they say so. */
  fragment: Track | undefined;
  defaultTicks: number;
  /** Where it begins, and what the places of its samples count from, as far as it says that. */
  start: number;
  base: number | undefined;
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
  if (name === "trex") {
    const id = bytes.number(start + 4, 4);
    for (const one of tracks) if (one.id === id) one.defaultTicks = bytes.number(start + 12, 4);
  } else if (name === "tfhd") takeFragment(bytes, start, tracks, state);
  else if (name === "trun") takeRun(bytes, span, state);
  else if (track === undefined) return;
  else if (name === "tkhd") track.id = bytes.number(start + (isLong ? 20 : 12), 4);
  else if (name === "mdhd") track.scale = bytes.number(start + (isLong ? 20 : 12), 4);
  else if (name === "hdlr") track.isSound = bytes.text(start + 8, 4) === "soun";
  else if (name === "stsd") {
    track.codec = bytes.text(start + 12, 4);
    track.rate = bytes.number(start + 40, 2);
  } else if (name === "stts") track.times = span;
  else if (name === "stsc") track.toChunk = span;
  else if (name === "stsz" || name === "stz2") track.samples = bytes.number(start + 8, 4);
  else if (name === "stco" || name === "co64") {
    track.offsets = span;
    track.offsetBytes = name === "co64" ? 8 : 4;
  }
}

/** How many rows a table has, of so many bytes each. */
function rowCount(bytes: ByteWindow, { start, end }: Span, rowBytes: number): number {
  const present = Math.max(0, Math.floor((end - start - 8) / rowBytes));
  return Math.min(bytes.number(start + 4, 4), present);
}

/** The samples of the chunks that begin within the file; all of them where a table is missing. */
function presentSamples(bytes: ByteWindow, { toChunk, offsets, offsetBytes }: Track): number {
  if (toChunk === undefined || offsets === undefined) return Number.POSITIVE_INFINITY;
  // Read before the other table: both in turn would move the window with each number.
  const runs = new Uint32Array(rowCount(bytes, toChunk, 12) * 2);
  for (let at = 0; at < runs.length; at++) {
    runs[at] = bytes.number(toChunk.start + 8 + (at >> 1) * 12 + (at & 1) * 4, 4);
  }
  const { start } = offsets;
  const count = rowCount(bytes, offsets, offsetBytes);
  let present = 0;
  let perChunk = 0;
  for (let chunk = 1, run = 0; chunk <= count; chunk++) {
    for (; run < runs.length && runs[run]! <= chunk; run += 2) perChunk = runs[run + 1]!;
    // Of 8 bytes the lower ones tell: no file here is larger.
    const offset = bytes.number(start + 4 + chunk * offsetBytes, 4);
    if (offset < bytes.sizeBytes) present += perChunk;
  }
  return present;
}

/** The most that so many samples can last, by the table of times. */
function ticksOf(bytes: ByteWindow, { times }: Track, samples: number): number {
  if (times === undefined) return 0;
  const rows = rowCount(bytes, times, 8);
  let ticks = 0;
  let longest = 0;
  for (let at = times.start + 8, n = 0; n < rows; n++, at += 8) {
    const each = bytes.number(at + 4, 4);
    ticks += bytes.number(at, 4) * each;
    longest = Math.max(longest, each);
  }
  return Math.min(ticks, samples * longest);
}

function takeFragment(
  bytes: ByteWindow,
  start: number,
  tracks: readonly Track[],
  state: FragmentState,
): void {
  const flags = bytes.number(start + 1, 3);
  const id = bytes.number(start + 4, 4);
  state.fragment = tracks.find((one) => one.id === id);
  const at = start + 8 + (flags & 1 ? 8 : 0) + (flags & 2 ? 4 : 0);
  const isFromStart = (flags & BASE_IS_START) !== 0;
  state.base = flags & 1 ? bytes.number(start + 12, 4) : isFromStart ? state.start : undefined;
  state.defaultTicks = flags & 8 ? bytes.number(at, 4) : (state.fragment?.defaultTicks ?? 0);
}

function takeRun(bytes: ByteWindow, { start, end }: Span, state: FragmentState): void {
  const track = state.fragment;
  if (track === undefined) return;
  const flags = bytes.number(start + 1, 3);
  const count = bytes.number(start + 4, 4);
  const entries = start + 8 + (flags & 1 ? 4 : 0) + (flags & 4 ? 4 : 0);
  const entryBytes = [0x100, 0x200, 0x400, 0x800].filter((flag) => flags & flag).length * 4;
  const present = entryBytes === 0 ? count : Math.floor((end - entries) / entryBytes);
  const samples = Math.max(0, Math.min(count, present));
  if (entryBytes === 0) {
    track.runSamples += samples;
    track.runTicks += samples * state.defaultTicks;
    return;
  }
  const hasTicks = (flags & 0x100) !== 0;
  const hasSize = (flags & 0x200) !== 0;
  const isPlaced = hasSize && (flags & 1) !== 0 && state.base !== undefined;
  let place = isPlaced ? state.base! + (bytes.number(start + 8, 4) | 0) : 0;
  for (let at = entries, n = 0; n < samples && place < bytes.sizeBytes; n++, at += entryBytes) {
    track.runSamples++;
    track.runTicks += hasTicks ? bytes.number(at, 4) : state.defaultTicks;
    if (isPlaced) place += bytes.number(at + (hasTicks ? 4 : 0), 4);
  }
}

function secondsOf(bytes: ByteWindow, track: Track): number {
  const { scale, codec, runTicks, runSamples } = track;
  const samples = Math.min(presentSamples(bytes, track), track.samples);
  const ticks = runTicks + ticksOf(bytes, track, samples);
  const stated = scale === 0 ? 0 : ticks / scale;
  if (codec !== "mp4a") return stated;
  const rate = Math.min(track.rate || MAX_STATED_RATE, MAX_STATED_RATE);
  return Math.max(stated, ((samples + runSamples) * AAC_SAMPLES) / rate);
}
