import { ByteWindow, JoinedBytes, UnmeasurableSound } from "./byte-window.ts";
import { longestOf, type MeasuredSound } from "./measured-sound.ts";
import { mpegSound } from "./mpeg.ts";

const START = 0x000001;
const PACK = 0xba;
const SYSTEM_END = 0xb9;
/** AC-3, DTS and uncompressed audio of discs, which the gateway cannot measure. */
const PRIVATE_1 = 0xbd;
const FIRST_SOUND = 0xc0;
const LAST_SOUND = 0xdf;
const FIRST_STREAM = 0xbb;
const STUFFING = 0xff;
const MAX_STUFFING = 16;

/**
 * Measures an MPEG program stream (ISO/IEC 11172-1 and 13818-1) by the frames in its audio packets. Throws
 * UnmeasurableSound if there is a gap between packets, because decoders then continue at different positions.
 */
export function programStreamSound(bytes: ByteWindow): MeasuredSound {
  const streams = new Map<number, JoinedBytes>();
  let position = 0;
  while (position + 4 <= bytes.sizeBytes && !isPadding(bytes, position)) {
    if (bytes.number(position, 3) !== START) throw new UnmeasurableSound();
    const id = bytes.byte(position + 3);
    if (id === SYSTEM_END) position += 4;
    else if (id === PACK) position += packBytes(bytes, position);
    else if (id < FIRST_STREAM || id === PRIVATE_1) throw new UnmeasurableSound();
    else position = takePacket(bytes, position, id, streams);
  }
  return longestOf(Array.from(streams.values(), (joined) => mpegSound(new ByteWindow(joined), 0)));
}

/** Returns true if only zeros follow, which some writers append. */
function isPadding(bytes: ByteWindow, position: number): boolean {
  if (bytes.number(position, 4) !== 0) return false;
  for (let at = position; at < bytes.sizeBytes; at++) if (bytes.byte(at) !== 0) return false;
  return true;
}

function packBytes(bytes: ByteWindow, position: number): number {
  const first = bytes.byte(position + 4);
  if (first >> 4 === 2) return 12;
  if (first >> 6 !== 1) throw new UnmeasurableSound();
  return 14 + (bytes.byte(position + 13) & 7);
}

/** Adds a packet to its stream. Returns the packet's end. */
function takePacket(
  bytes: ByteWindow,
  position: number,
  id: number,
  streams: Map<number, JoinedBytes>,
): number {
  const end = position + 6 + bytes.number(position + 4, 2);
  if (id < FIRST_SOUND || id > LAST_SOUND) return end;
  const start = payloadStart(bytes, position + 6);
  let joined = streams.get(id);
  if (joined === undefined) {
    joined = new JoinedBytes(bytes);
    streams.set(id, joined);
  }
  joined.add(start, Math.min(end, bytes.sizeBytes) - start);
  return end;
}

/** Returns the start of the payload after a packet header of either form. */
function payloadStart(bytes: ByteWindow, heading: number): number {
  if (bytes.byte(heading) >> 6 === 2) return heading + 3 + bytes.byte(heading + 2);
  let at = heading;
  while (bytes.byte(at) === STUFFING && at - heading < MAX_STUFFING) at++;
  if (bytes.byte(at) >> 6 === 1) at += 2;
  const kind = bytes.byte(at) >> 4;
  return at + (kind === 2 ? 5 : kind === 3 ? 10 : 1);
}
