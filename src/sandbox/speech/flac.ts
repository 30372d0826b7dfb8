import { BitWriter } from "./bit-writer.ts";
import { SAMPLE_RATE, type SpeechEncoder, type SpeechFacts } from "./speech-encoder.ts";
import { vorbisComments } from "./spoken-text.ts";

const BLOCK_SAMPLES = 4096;
const SAMPLE_BITS = 16;
const MAX_RICE_PARAMETER = 14;
/** Order of the fixed predictor: it predicts each sample from the two before it. */
const ORDER = 2;

/**
 * Returns an encoder of FLAC files (RFC 9639) with fixed prediction of the second order and a residue in Rice
 * codes.
 */
export function flacEncoder({ totalSamples, comment }: SpeechFacts): SpeechEncoder {
  let block = 0;
  return {
    frameSamples: BLOCK_SAMPLES,
    trailingSamples: 0,
    head: () => flacHead(totalSamples, comment),
    encode: (samples) => flacFrame(samples, block++),
  };
}

function flacHead(totalSamples: number, comment: string): Uint8Array {
  const STREAM_INFO_BYTES = 34;
  const info = new BitWriter();
  info.write(BLOCK_SAMPLES, 16);
  info.write(BLOCK_SAMPLES, 16);
  // Frame sizes are unknown.
  info.write(0, 24);
  info.write(0, 24);
  info.write(SAMPLE_RATE, 20);
  info.write(0, 3);
  info.write(SAMPLE_BITS - 1, 5);
  info.write(Math.floor(totalSamples / 2 ** 24), 12);
  info.write(totalSamples % 2 ** 24, 24);
  const streamInfo = Buffer.alloc(STREAM_INFO_BYTES);
  // The rest is the checksum of the samples. It is still unknown: zeros.
  streamInfo.set(info.bytes());
  const comments = vorbisComments(comment);
  return Buffer.concat([
    Buffer.from("fLaC", "latin1"),
    blockHead(0, streamInfo.length),
    streamInfo,
    blockHead(0x80 | 4, comments.length),
    comments,
  ]);
}

function blockHead(type: number, length: number): Buffer {
  return Buffer.from([type, length >> 16, (length >> 8) & 0xff, length & 0xff]);
}

function flacFrame(samples: Int16Array, block: number): Uint8Array {
  const bits = new BitWriter();
  const isWhole = samples.length === BLOCK_SAMPLES;
  // Sync code, fixed block size.
  bits.write(0xfff8, 16);
  // 4,096 samples, or a 16-bit length that follows. 24 kHz.
  bits.write(isWhole ? 0b1100 : 0b0111, 4);
  bits.write(0b0111, 4);
  // Mono, 16 bits, reserved.
  bits.write(0b0000_100_0, 8);
  for (const byte of Buffer.from(String.fromCodePoint(codedNumber(block)), "utf8"))
    bits.write(byte, 8);
  if (!isWhole) bits.write(samples.length - 1, 16);
  bits.write(crc(bits.bytes(), 8, 0x07), 8);
  writeSubframe(bits, samples);
  bits.align();
  bits.write(crc(bits.bytes(), 16, 0x8005), 16);
  return bits.bytes();
}

/**
 * Returns the number of a block for its coding as a UTF-8 character. Surrogates begin after 55,295 blocks, or
 * 2.6 hours.
 */
function codedNumber(block: number): number {
  if (block > 0xd7ff) throw new RangeError("the speech is too long for FLAC");
  return block;
}

function writeSubframe(bits: BitWriter, samples: Int16Array): void {
  const order = Math.min(ORDER, samples.length);
  const residue: number[] = [];
  let sum = 0;
  for (let index = order; index < samples.length; index++) {
    const value = samples[index]! - 2 * samples[index - 1]! + samples[index - 2]!;
    // Zigzag coding: small numbers of either sign become small numbers.
    const folded = value < 0 ? -2 * value - 1 : 2 * value;
    residue.push(folded);
    sum += folded;
  }
  bits.write(0, 1);
  // A fixed predictor; blocks of one or two samples have no residue.
  bits.write(0b001000 | order, 6);
  bits.write(0, 1);
  for (let index = 0; index < order; index++) bits.write(samples[index]!, SAMPLE_BITS);
  const mean = sum / Math.max(residue.length, 1);
  const parameter = Math.min(MAX_RICE_PARAMETER, Math.max(0, Math.floor(Math.log2(mean + 1))));
  // Rice codes with parameters of four bits, in one partition.
  bits.write(0b00_0000, 6);
  bits.write(parameter, 4);
  for (const value of residue) {
    bits.writeUnary(value >> parameter);
    bits.write(value, parameter);
  }
}

/** Returns a CRC without reflection, with initial value 0. */
function crc(bytes: Uint8Array, bits: 8 | 16, polynomial: number): number {
  const top = 1 << (bits - 1);
  const mask = (1 << bits) - 1;
  let sum = 0;
  for (const byte of bytes) {
    sum ^= byte << (bits - 8);
    for (let bit = 0; bit < 8; bit++) sum = (sum & top ? (sum << 1) ^ polynomial : sum << 1) & mask;
  }
  return sum;
}
