import { UnmeasurableSound } from "./byte-window.ts";

/** Vorbis I (https://xiph.org/vorbis/doc/Vorbis_I_spec.html): counts the samples of its packets. */

/** Largest setup header that is read. Encoders write shorter ones. */
export const MAX_VORBIS_SETUP_BYTES = 262_144;
const CODEBOOK = 0x564342;
const MAX_CODEBOOK_WORK = 4_194_304;

export interface VorbisIdentification {
  readonly channels: number;
  readonly rate: number;
  readonly shortBlock: number;
  readonly longBlock: number;
}

/** Parses the first header, of 30 bytes. */
export function vorbisIdentification(heading: Uint8Array): VorbisIdentification {
  const view = new DataView(heading.buffer, heading.byteOffset, heading.byteLength);
  if (heading.length < 30) throw new UnmeasurableSound();
  const sizes = heading[28]!;
  const rate = view.getUint32(12, true);
  if (rate === 0 || heading[11] === 0) throw new UnmeasurableSound();
  return {
    channels: heading[11]!,
    rate,
    shortBlock: 2 ** (sizes & 15),
    longBlock: 2 ** (sizes >> 4),
  };
}

/** Counts the samples in the packets of one stream from the first byte of each packet. */
export class VorbisSamples {
  readonly #identification: VorbisIdentification;
  /** Block size of each mode: true if it is the long one. Undefined before the setup header. */
  #modes: readonly boolean[] | undefined;
  #lastBlock = 0;
  samples = 0;

  constructor(identification: VorbisIdentification) {
    this.#identification = identification;
  }

  /** Parses the setup header. Throws UnmeasurableSound if it is invalid, or if it is the second one. */
  takeSetup(heading: Uint8Array): void {
    if (this.#modes !== undefined) throw new UnmeasurableSound();
    this.#modes = modesOf(heading, this.#identification.channels);
  }

  /** Counts an audio packet. It plays a quarter of its block and a quarter of the block before it. */
  takePacket(first: number): void {
    if ((first & 1) !== 0) return;
    if (this.#modes === undefined) throw new UnmeasurableSound();
    const bits = integerLog(this.#modes.length - 1);
    const isLong = this.#modes[(first >> 1) & ((1 << bits) - 1)];
    if (isLong === undefined) return;
    const { longBlock, shortBlock } = this.#identification;
    const block = isLong ? longBlock : shortBlock;
    if (this.#lastBlock > 0) this.samples += (this.#lastBlock + block) / 4;
    this.#lastBlock = block;
  }
}

/**
 * Returns for each mode if its block is long. The modes are the last part of the setup header, so all parts
 * before them are parsed.
 */
function modesOf(heading: Uint8Array, channels: number): boolean[] {
  const bits = new Bits(heading, 7);
  const codebooks = bits.read(8) + 1;
  for (let at = 0; at < codebooks; at++) skipCodebook(bits);
  for (let at = bits.read(6) + 1; at > 0; at--) bits.read(16);
  for (let at = bits.read(6) + 1; at > 0; at--) skipFloor(bits);
  for (let at = bits.read(6) + 1; at > 0; at--) skipResidue(bits);
  for (let at = bits.read(6) + 1; at > 0; at--) skipMapping(bits, channels);
  const modes: boolean[] = [];
  for (let at = bits.read(6) + 1; at > 0; at--) {
    modes.push(bits.read(1) === 1);
    bits.skip(40);
  }
  if (bits.read(1) !== 1) throw new UnmeasurableSound();
  return modes;
}

function skipCodebook(bits: Bits): void {
  if (bits.read(24) !== CODEBOOK) throw new UnmeasurableSound();
  const dimensions = bits.read(16);
  const entries = bits.read(24);
  if (bits.read(1) === 0) {
    const isSparse = bits.read(1) === 1;
    for (let at = 0; at < entries; at++) {
      if (!isSparse || bits.read(1) === 1) bits.read(5);
    }
  } else {
    bits.read(5);
    for (let entry = 0; entry < entries; ) entry += bits.read(integerLog(entries - entry));
  }
  const lookup = bits.read(4);
  if (lookup > 2) throw new UnmeasurableSound();
  if (lookup === 0) return;
  bits.skip(64);
  const valueBits = bits.read(4) + 1;
  bits.read(1);
  const values = lookup === 1 ? latticeValues(entries, dimensions) : entries * dimensions;
  bits.skip(values * valueBits);
}

/** Returns the largest integer that, raised to the power `dimensions`, is at most the number of entries. */
function latticeValues(entries: number, dimensions: number): number {
  if (dimensions === 0 || entries === 0) throw new UnmeasurableSound();
  let value = Math.floor(entries ** (1 / dimensions));
  while ((value + 1) ** dimensions <= entries) value++;
  while (value ** dimensions > entries) value--;
  return value;
}

function skipFloor(bits: Bits): void {
  const type = bits.read(16);
  if (type > 1) throw new UnmeasurableSound();
  if (type === 0) {
    bits.skip(8 + 16 + 16 + 6 + 8);
    bits.skip((bits.read(4) + 1) * 8);
    return;
  }
  const classes = Array.from({ length: bits.read(5) }, () => bits.read(4));
  const dimensions = Array.from({ length: Math.max(-1, ...classes) + 1 }, () => {
    const count = bits.read(3) + 1;
    const subclasses = bits.read(2);
    if (subclasses > 0) bits.read(8);
    bits.skip(8 * (1 << subclasses));
    return count;
  });
  bits.read(2);
  const rangeBits = bits.read(4);
  for (const classIndex of classes) bits.skip(dimensions[classIndex]! * rangeBits);
}

function skipResidue(bits: Bits): void {
  if (bits.read(16) > 2) throw new UnmeasurableSound();
  bits.skip(24 * 3);
  const classifications = bits.read(6) + 1;
  bits.read(8);
  const cascades = Array.from({ length: classifications }, () => {
    const low = bits.read(3);
    return low + (bits.read(1) === 1 ? bits.read(5) * 8 : 0);
  });
  for (const cascade of cascades) {
    for (let bit = 0; bit < 8; bit++) if ((cascade >> bit) & 1) bits.read(8);
  }
}

function skipMapping(bits: Bits, channels: number): void {
  if (bits.read(16) !== 0) throw new UnmeasurableSound();
  const submaps = bits.read(1) === 1 ? bits.read(4) + 1 : 1;
  if (bits.read(1) === 1) {
    const channelBits = integerLog(channels - 1);
    for (let at = bits.read(8) + 1; at > 0; at--) bits.skip(channelBits * 2);
  }
  bits.read(2);
  if (submaps > 1) bits.skip(4 * channels);
  bits.skip(24 * submaps);
}

/** Returns the number of bits of a value: 0 for 0. */
function integerLog(value: number): number {
  return value <= 0 ? 0 : 32 - Math.clz32(value);
}

/** Reads bits, starting at the lowest bit of each byte. Throws UnmeasurableSound after the end. */
class Bits {
  readonly #bytes: Uint8Array;
  #position: number;
  #reads = 0;

  constructor(bytes: Uint8Array, startByte: number) {
    this.#bytes = bytes;
    this.#position = startByte * 8;
  }

  read(bits: number): number {
    if (++this.#reads > MAX_CODEBOOK_WORK) throw new UnmeasurableSound();
    let value = 0;
    for (let at = 0; at < bits; at++) {
      const bit = this.#position + at;
      value += (((this.#bytes[bit >> 3] ?? 0) >> (bit & 7)) & 1) * 2 ** at;
    }
    this.skip(bits);
    return value;
  }

  skip(bits: number): void {
    this.#position += bits;
    if (this.#position > this.#bytes.length * 8) throw new UnmeasurableSound();
  }
}
