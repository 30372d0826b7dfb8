import { type ByteWindow, UnmeasurableSound } from "./byte-window.ts";
import { longestOf, type MeasuredSound, NO_SOUND, playedInTurn } from "./measured-sound.ts";
import { disguisedMpegSound, mpegSoundIn } from "./mpeg.ts";

/** Format codes (mmreg.h). */
const PCM = 0x0001;
const MS_ADPCM = 0x0002;
const FLOAT = 0x0003;
const A_LAW = 0x0006;
const MU_LAW = 0x0007;
const IMA_ADPCM = 0x0011;
const GSM = 0x0031;
const MP3 = 0x0055;
const EXTENSIBLE = 0xfffe;

const MAX_RATE = 768_000;
const MAX_CHANNELS = 64;
const MAX_CHUNKS = 10_000;
const ADPCM_BITS = 4;
const GSM_BLOCK_BYTES = 65;
const GSM_BLOCK_SAMPLES = 320;

interface Format {
  readonly code: number;
  readonly channels: number;
  readonly rate: number;
  readonly blockBytes: number;
  readonly bits: number;
  /** Valid bits of a sample in the extended form; 0 if it states none. */
  readonly validBits: number;
}

/**
 * Measures a WAVE file by the samples in its data chunks. A length of 0, or one beyond the end of the file, as in
 * live recordings, means the rest of the file. If there are two formats, readers differ in which one they use, so
 * the file is rejected. Samples that are frames of MPEG audio count as such frames, because decoders search for
 * them.
 */
export function wavSound(bytes: ByteWindow): MeasuredSound {
  if (bytes.text(8, 4) !== "WAVE") return NO_SOUND;
  let format: Format | undefined;
  const sounds: MeasuredSound[] = [];
  let chunks = 0;
  for (let position = 12; position + 8 <= bytes.sizeBytes; ) {
    if (++chunks > MAX_CHUNKS) throw new UnmeasurableSound();
    const name = bytes.text(position, 4);
    const stated = bytes.littleEndian(position + 4, 4);
    const start = position + 8;
    let length = stated;
    if (name === "fmt ") {
      if (format !== undefined) throw new UnmeasurableSound();
      format = formatAt(bytes, start, stated);
    }
    if (name === "data") {
      const left = bytes.sizeBytes - start;
      if (format === undefined) throw new UnmeasurableSound();
      length = stated === 0 ? left : Math.min(stated, left);
      sounds.push(soundOfData(bytes, start, length, format));
    }
    position = start + length + (length % 2);
  }
  return playedInTurn(sounds);
}

const EXTENSIBLE_BYTES = 40;

function formatAt(bytes: ByteWindow, start: number, length: number): Format {
  const code = bytes.littleEndian(start, 2);
  const isExtended = code === EXTENSIBLE && length >= EXTENSIBLE_BYTES;
  return {
    // The code is at the beginning of the identifier of the extended form.
    code: isExtended ? bytes.littleEndian(start + 24, 2) : code,
    channels: bytes.littleEndian(start + 2, 2),
    rate: bytes.littleEndian(start + 4, 4),
    blockBytes: bytes.littleEndian(start + 12, 2),
    bits: bytes.littleEndian(start + 14, 2),
    validBits: isExtended ? bytes.littleEndian(start + 18, 2) : 0,
  };
}

function soundOfData(
  bytes: ByteWindow,
  start: number,
  length: number,
  format: Format,
): MeasuredSound {
  const { code, channels, rate } = format;
  if (code === MP3) return mpegSoundIn(bytes, start, start + length);
  if (rate < 1 || rate > MAX_RATE || channels < 1 || channels > MAX_CHANNELS) {
    throw new UnmeasurableSound();
  }
  const seconds = (length * samplesPerByte(format)) / rate;
  const ofSamples = { seconds, longestSeconds: seconds };
  if (code !== PCM) return ofSamples;
  return longestOf([ofSamples, disguisedMpegSound(bytes, start, start + length)]);
}

/**
 * Returns samples per byte. Simultaneous samples of all channels count once. Throws UnmeasurableSound if the
 * format is not bounded.
 */
function samplesPerByte(format: Format): number {
  const { code, channels, blockBytes, bits } = format;
  switch (code) {
    case PCM:
    case FLOAT:
      return 1 / sampleBytes(format);
    case A_LAW:
    case MU_LAW:
      return 1 / channels;
    case IMA_ADPCM:
      if (bits !== ADPCM_BITS) break;
      return perBlock(((blockBytes - 4 * channels) * 2) / channels + 1, blockBytes);
    case MS_ADPCM:
      return perBlock(((blockBytes - 7 * channels) * 2) / channels + 2, blockBytes);
    case GSM:
      if (channels !== 1 || blockBytes !== GSM_BLOCK_BYTES) break;
      return GSM_BLOCK_SAMPLES / GSM_BLOCK_BYTES;
  }
  throw new UnmeasurableSound();
}

/**
 * Returns the bytes of a sample of all channels. The format states this size three times, and decoders differ in
 * which value they use: the smallest counts. 24 valid bits in 32 are no contradiction.
 */
function sampleBytes({ channels, blockBytes, bits, validBits }: Format): number {
  if (bits < 1 || bits > 64) throw new UnmeasurableSound();
  const stored = channels * Math.ceil(bits / 8);
  const isPadded = blockBytes === stored && bits === 32 && validBits === 24;
  const valid = validBits === 0 || isPadded ? stored : channels * Math.ceil(validBits / 8);
  return Math.min(stored, valid, blockBytes || stored);
}

function perBlock(samples: number, blockBytes: number): number {
  if (samples <= 0 || blockBytes === 0) throw new UnmeasurableSound();
  return samples / blockBytes;
}
