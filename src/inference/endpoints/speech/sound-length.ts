import type { SpeechFormat } from "../../../providers/media.ts";

/**
 * Bytes per second, used if the audio does not state its rate: OpenAI's PCM, and the usual bit rates for
 * speech.
 */
const USUAL_RATES: Readonly<Record<SpeechFormat, number>> = {
  pcm: 48_000,
  wav: 48_000,
  flac: 24_000,
  mp3: 16_000,
  aac: 16_000,
  opus: 8_000,
};

/**
 * Measures the playing time of audio that arrives in pieces. Uses the time in the last Ogg page, the rate in
 * the first piece, or the usual rate of the format.
 */
export class SoundLength {
  readonly #format: SpeechFormat;
  #bytes = 0;
  #rate = 0;
  #hasPages = false;
  #ms = 0;

  constructor(format: SpeechFormat) {
    this.#format = format;
  }

  /** Playing time so far in milliseconds. Never decreases. */
  get ms(): number {
    return this.#ms;
  }

  push(piece: Uint8Array): void {
    const bytes = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength);
    if (this.#rate === 0) this.#rate = rateOf(bytes, this.#format);
    this.#bytes += bytes.length;
    const pageEndMs = this.#format === "opus" ? this.#pageEndMs(bytes) : 0;
    this.#hasPages ||= pageEndMs > 0;
    const ms = this.#hasPages ? pageEndMs : Math.ceil((this.#bytes * 1_000) / this.#rate);
    this.#ms = Math.max(this.#ms, ms);
  }

  /**
   * Returns the end of the last page that begins in these bytes, in milliseconds. Returns 0 if there is none,
   * or if its value is implausible.
   */
  #pageEndMs(bytes: Buffer): number {
    const at = bytes.lastIndexOf("OggS");
    if (at < 0 || at + OGG_POSITION + 8 > bytes.length) return 0;
    const samples = Number(bytes.readBigUInt64LE(at + OGG_POSITION));
    const ms = Math.ceil(samples / OPUS_SAMPLES_A_MS);
    return ms <= (this.#bytes * 1_000) / MIN_OPUS_RATE ? ms : 0;
  }
}

/**
 * Position, in the header of an Ogg page (RFC 3533, 6), of the number of samples up to its end, at 48 kHz
 * (RFC 7845, 4).
 */
const OGG_POSITION = 6;
const OPUS_SAMPLES_A_MS = 48;
/** Minimum plausible rate of Opus in bytes per second. Speech has at least 750 (6 kbit/s), and silence less. */
const MIN_OPUS_RATE = 250;

/** Returns the rate in bytes per second. */
function rateOf(bytes: Buffer, format: SpeechFormat): number {
  const stated = format === "wav" ? waveRate(bytes) : format === "mp3" ? mp3Rate(bytes) : undefined;
  return stated ?? USUAL_RATES[format];
}

const MIN_WAVE_RATE = 8_000;
const MAX_WAVE_RATE = 192_000;

/**
 * Returns the byte rate at offset 28 of a `RIFF…WAVEfmt ` header, or undefined if the header is absent or its
 * rate is implausible.
 */
function waveRate(bytes: Buffer): number | undefined {
  if (bytes.length < 32 || bytes.toString("latin1", 8, 16) !== "WAVEfmt ") return undefined;
  const rate = bytes.readUInt32LE(28);
  return rate >= MIN_WAVE_RATE && rate <= MAX_WAVE_RATE ? rate : undefined;
}

/** Bit rates of layer III in kilobits per second, by the index in a frame's header. 0 states no rate. */
const MPEG1_KILOBITS = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0];
const MPEG2_KILOBITS = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0];
const MIN_MP3_KILOBITS = 16;

/**
 * Returns the rate of the first frame. Its header has eleven set bits, the version (3 is MPEG 1), the layer
 * (1 is III), and the index.
 */
function mp3Rate(bytes: Buffer): number | undefined {
  for (let at = afterId3(bytes); at + 2 < bytes.length; at++) {
    if (bytes[at] !== 0xff || (bytes[at + 1]! & 0xe6) !== 0xe2) continue;
    const rates = (bytes[at + 1]! & 0x18) === 0x18 ? MPEG1_KILOBITS : MPEG2_KILOBITS;
    const kilobits = rates[bytes[at + 2]! >> 4]!;
    if (kilobits >= MIN_MP3_KILOBITS) return (kilobits * 1_000) / 8;
  }
  return undefined;
}

/** Returns the end of an ID3 header. Four bytes of seven bits each state its length. */
function afterId3(bytes: Buffer): number {
  if (bytes.length < 10 || bytes.toString("latin1", 0, 3) !== "ID3") return 0;
  const sizes = bytes.subarray(6, 10);
  return 10 + sizes.reduce((length, byte) => length * 128 + (byte & 0x7f), 0);
}
