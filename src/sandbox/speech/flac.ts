import { SAMPLE_RATE, type SpeechEncoder, type SpeechFacts } from "./speech-encoder.ts";
import { vorbisComments } from "./spoken-text.ts";

const BLOCK_SAMPLES = 4096;
/** Mono, 16 bits per sample. */
const SAMPLE_FORMAT = 0b0000_100_0;
/** A subframe of uncompressed samples. */
const VERBATIM = 0b0_000001_0;

/** Returns an encoder of FLAC files (RFC 9639) that does not compress the samples. */
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
  // Frame sizes and the checksum of the samples are unknown: zeros.
  const streamInfo = Buffer.alloc(34);
  streamInfo.writeUInt16BE(BLOCK_SAMPLES, 0);
  streamInfo.writeUInt16BE(BLOCK_SAMPLES, 2);
  // 20 bits of sample rate, 3 of channels, 5 of sample size, 36 of length.
  const format = (BigInt(SAMPLE_RATE) << 44n) | (15n << 36n) | BigInt(totalSamples);
  streamInfo.writeBigUInt64BE(format, 10);
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
  // Sync code; a 16-bit block length follows; 24 kHz. The number of the block is coded as a UTF-8 character.
  const head = Buffer.concat([
    Buffer.from([0xff, 0xf8, 0b0111_0111, SAMPLE_FORMAT]),
    Buffer.from(String.fromCodePoint(codedNumber(block)), "utf8"),
    uint16(samples.length - 1),
  ]);
  const data = Buffer.from(samples.buffer, samples.byteOffset, samples.byteLength);
  const subframe = Buffer.concat([Buffer.from([VERBATIM]), Buffer.from(data).swap16()]);
  const frame = Buffer.concat([head, Buffer.from([crc(head, 8, 0x07)]), subframe]);
  return Buffer.concat([frame, uint16(crc(frame, 16, 0x8005))]);
}

/**
 * Returns the number of a block for its coding as a UTF-8 character. Surrogates begin after 55,295 blocks, or
 * 2.6 hours.
 */
function codedNumber(block: number): number {
  if (block > 0xd7ff) throw new RangeError("the speech is too long for FLAC");
  return block;
}

function uint16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(value);
  return bytes;
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
