import { type ByteWindow, UnmeasurableSound } from "./byte-window.ts";

interface VariableNumber {
  readonly value: number;
  /** Length in bytes; 0 if there is no number. */
  readonly length: number;
  /** True if all bits are set: an element of this size ends at the next element. */
  readonly isUnknown: boolean;
}

/** Reads a number of variable length (RFC 8794, section 4). */
export function numberAt(bytes: ByteWindow, position: number): VariableNumber {
  const first = bytes.byte(position);
  const length = Math.clz32(first) - 23;
  if (length > 8) return { value: 0, length: 0, isUnknown: false };
  let value = first & (0xff >> length);
  let isUnknown = value === 0xff >> length;
  for (let at = 1; at < length; at++) {
    const byte = bytes.byte(position + at);
    value = value * 256 + byte;
    isUnknown = isUnknown && byte === 0xff;
  }
  return { value, length, isUnknown };
}

export interface BlockFrame {
  readonly start: number;
  readonly end: number;
}

const LACING = 0x06;
const XIPH = 0x02;
const EBML = 0x06;

/**
 * Returns the frames of a block (RFC 9559, section 10), which begins with its flags. Throws UnmeasurableSound if
 * they do not fill the block exactly.
 */
export function blockFrames(bytes: ByteWindow, flags: number, end: number): BlockFrame[] {
  const start = flags + 1;
  if (start >= end) return [];
  const lacing = bytes.byte(flags) & LACING;
  if (lacing === 0) return [{ start, end }];
  const count = bytes.byte(start) + 1;
  const reader = { position: start + 1 };
  let sizes: number[];
  if (lacing === XIPH) sizes = xiphSizes(bytes, reader, count - 1);
  else if (lacing === EBML) sizes = ebmlSizes(bytes, reader, count - 1);
  else sizes = Array(count - 1).fill(Math.floor((end - start - 1) / count));
  const frames: BlockFrame[] = [];
  let { position } = reader;
  for (const size of sizes) {
    frames.push({ start: position, end: position + size });
    position += size;
  }
  if (position > end || sizes.some((size) => size < 0)) throw new UnmeasurableSound();
  frames.push({ start: position, end });
  return frames;
}

function xiphSizes(bytes: ByteWindow, reader: { position: number }, count: number): number[] {
  return Array.from({ length: count }, () => {
    let size = 0;
    let byte: number;
    do {
      byte = bytes.byte(reader.position++);
      size += byte;
    } while (byte === 255);
    return size;
  });
}

/** Reads the first size, then differences, whose zero is in the middle of their range. */
function ebmlSizes(bytes: ByteWindow, reader: { position: number }, count: number): number[] {
  let size = 0;
  return Array.from({ length: count }, (_, at) => {
    const { value, length } = numberAt(bytes, reader.position);
    if (length === 0) throw new UnmeasurableSound();
    reader.position += length;
    size = at === 0 ? value : size + value - (2 ** (7 * length - 1) - 1);
    return size;
  });
}
