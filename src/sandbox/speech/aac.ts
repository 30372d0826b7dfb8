import { BitWriter } from "./bit-writer.ts";
import { PrefixCode } from "./prefix-code.ts";
import type { SpeechEncoder, SpeechFacts } from "./speech-encoder.ts";
import { id3Comment } from "./spoken-text.ts";

const LINES = 1024;
const HEAD_BYTES = 7;
/**
 * Ends of the scale factor bands of long windows at 24 kHz (ISO 14496-3), up to 8.25 kHz. Higher lines are
 * zero.
 */
const BAND_ENDS = [
  4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 52, 60, 68, 76, 84, 92, 100, 108, 116, 124, 136, 148,
  160, 172, 188, 204, 220, 240, 260, 284, 308, 336, 364, 396, 432, 468, 508, 552, 600, 652, 704,
];
/** Codebook 7: pairs of magnitudes up to 7, each one hexadecimal digit. Signs follow the pair. */
const PAIRS_NUMBER = 7;
const MAX_MAGNITUDE = 7;
const PAIRS = new PrefixCode(
  "100310301411621612620602731713722730703823832814841815851833824804840942925952905961950916" +
    "943935934953926962917a36a06a60a44a71a45a72a54a63a27a73a64a55a46a37b70b07b65b56b74b47b57b75" +
    "c76c66c67c77",
);
/**
 * Codes for the difference between a scale factor and the one before it, plus 60. Covers differences up to
 * 14.
 */
const MAX_STEP = 14;
const NO_STEP = 60;
const STEPS = new PrefixCode(
  "13c33b43d43a43e53953f638640637641742736743835844834845833946932931947a48a30a49a2fa4aa2e",
);
/** Scale factor at which a quantised value equals its line. */
const UNIT_SCALE = 100;
const MAX_SCALE = 255;
const ROUNDING = 0.4054;

/**
 * Returns an encoder of AAC-LC in ADTS: long windows, one codebook, and per band a scale factor with which
 * the band fits the codebook.
 */
export function aacEncoder({ comment }: SpeechFacts): SpeechEncoder {
  const transform = new LappedTransform();
  return {
    frameSamples: LINES,
    // The transform outputs a frame together with the next one.
    trailingSamples: LINES,
    head: () => id3Comment(comment),
    encode: (samples) => adtsFrame(channelOf(transform.lines(samples))),
  };
}

/** The modified discrete cosine transform of a frame and the one before it, with the sine window. */
class LappedTransform {
  readonly #samples = new Float64Array(2 * LINES);
  readonly #real = new Float64Array(2 * LINES);
  readonly #imaginary = new Float64Array(2 * LINES);
  readonly #lines = new Float64Array(LINES);

  /**
   * Returns the lines of a frame. The next call overwrites the returned array. Missing samples count as
   * silence.
   */
  lines(samples: Int16Array): Float64Array {
    this.#samples.copyWithin(0, LINES);
    this.#samples.fill(0, LINES);
    this.#samples.set(samples, LINES);
    const length = this.#samples.length;
    for (let index = 0; index < length; index++) {
      const value = this.#samples[index]! * Math.sin((Math.PI / length) * (index + 0.5));
      const angle = (-Math.PI * index) / length;
      this.#real[index] = value * Math.cos(angle);
      this.#imaginary[index] = value * Math.sin(angle);
    }
    fourier(this.#real, this.#imaginary);
    const offset = (LINES + 1) / 2;
    for (let line = 0; line < LINES; line++) {
      const angle = ((-2 * Math.PI) / length) * offset * (line + 0.5);
      const real = this.#real[line]! * Math.cos(angle);
      this.#lines[line] = 2 * (real - this.#imaginary[line]! * Math.sin(angle));
    }
    return this.#lines;
  }
}

/** Computes the Fourier transform in place. The length must be a power of two. */
function fourier(real: Float64Array, imaginary: Float64Array): void {
  const length = real.length;
  for (let index = 1, mirrored = 0; index < length; index++) {
    let bit = length >> 1;
    for (; mirrored & bit; bit >>= 1) mirrored ^= bit;
    mirrored ^= bit;
    if (index < mirrored) {
      [real[index], real[mirrored]] = [real[mirrored]!, real[index]!];
      [imaginary[index], imaginary[mirrored]] = [imaginary[mirrored]!, imaginary[index]!];
    }
  }
  for (let span = 1; span < length; span *= 2) {
    for (let step = 0; step < span; step++) {
      const cosine = Math.cos((-Math.PI * step) / span);
      const sine = Math.sin((-Math.PI * step) / span);
      for (let low = step; low < length; low += 2 * span) {
        const high = low + span;
        const realPart = real[high]! * cosine - imaginary[high]! * sine;
        const imaginaryPart = real[high]! * sine + imaginary[high]! * cosine;
        real[high] = real[low]! - realPart;
        imaginary[high] = imaginary[low]! - imaginaryPart;
        real[low] = real[low]! + realPart;
        imaginary[low] = imaginary[low]! + imaginaryPart;
      }
    }
  }
}

/** Returns the bits of one channel's frame. */
function channelOf(lines: Float64Array): BitWriter {
  const scales = scalesOf(lines);
  const bits = new BitWriter();
  // Element type (single channel), element number, and scale factor of the first band.
  bits.write(0, 3);
  bits.write(0, 4);
  bits.write(scales[0]!, 8);
  // Long window of sine shape.
  bits.write(0, 4);
  bits.write(BAND_ENDS.length, 6);
  bits.write(0, 1);
  // One section. A length of 31 means that more length follows.
  bits.write(PAIRS_NUMBER, 4);
  bits.write(31, 5);
  bits.write(BAND_ENDS.length - 31, 5);
  for (const [band, scale] of scales.entries()) {
    STEPS.write(bits, scale - (scales[band - 1] ?? scale) + NO_STEP);
  }
  // No pulses, no noise shaping, no gain control.
  bits.write(0, 3);
  for (const [band, end] of BAND_ENDS.entries()) {
    const from = BAND_ENDS[band - 1] ?? 0;
    writeBand(bits, lines.subarray(from, end), scales[band]!);
  }
  // End of the frame.
  bits.write(7, 3);
  bits.align();
  return bits;
}

/**
 * Returns the finest scale factors with which each band fits the codebook and its difference to its
 * neighbours fits MAX_STEP.
 */
function scalesOf(lines: Float64Array): number[] {
  const scales = BAND_ENDS.map((end, band) => {
    let peak = 0;
    for (let index = BAND_ENDS[band - 1] ?? 0; index < end; index++)
      peak = Math.max(peak, Math.abs(lines[index]!));
    const fitting = Math.ceil(4 * Math.log2(peak / MAX_MAGNITUDE ** (4 / 3))) + UNIT_SCALE;
    return Math.min(Math.max(fitting, UNIT_SCALE), MAX_SCALE);
  });
  // A coarser scale factor fits too.
  for (let band = 1; band < scales.length; band++) {
    scales[band] = Math.max(scales[band]!, scales[band - 1]! - MAX_STEP);
  }
  for (let band = scales.length - 2; band >= 0; band--) {
    scales[band] = Math.max(scales[band]!, scales[band + 1]! - MAX_STEP);
  }
  return scales;
}

function writeBand(bits: BitWriter, lines: Float64Array, scale: number): void {
  const factor = 2 ** ((-3 / 16) * (scale - UNIT_SCALE));
  const quantised = (line: number) =>
    Math.min(Math.floor(Math.abs(line) ** 0.75 * factor + ROUNDING), MAX_MAGNITUDE);
  for (let index = 0; index < lines.length; index += 2) {
    const pair = [lines[index]!, lines[index + 1]!] as const;
    const [first, second] = [quantised(pair[0]), quantised(pair[1])];
    PAIRS.write(bits, (first << 4) | second);
    if (first > 0) bits.write(pair[0] < 0 ? 1 : 0, 1);
    if (second > 0) bits.write(pair[1] < 0 ? 1 : 0, 1);
  }
}

function adtsFrame(data: BitWriter): Uint8Array {
  const body = data.bytes();
  const bits = new BitWriter();
  // Sync word, MPEG-4, no checksum.
  bits.write(0xfff1, 16);
  // Low complexity, 24 kHz, private, one channel.
  bits.write(1, 2);
  bits.write(6, 4);
  bits.write(0, 1);
  bits.write(1, 3);
  bits.write(0, 4);
  bits.write(body.length + HEAD_BYTES, 13);
  // Variable bit rate, one block.
  bits.write(0x7ff, 11);
  bits.write(0, 2);
  return Buffer.concat([bits.bytes(), body]);
}
