import { BitWriter } from "./bit-writer.ts";
import { PrefixCode } from "./prefix-code.ts";
import type { SpeechEncoder, SpeechFacts } from "./speech-encoder.ts";
import { id3Comment } from "./spoken-text.ts";

const LINES = 1024;
const HEAD_BYTES = 7;
/** ISO 14496-3, scale factor bands of long windows at 24 kHz, up to 8.25 kHz: the rest is zero. */
const BAND_ENDS = [
  4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 52, 60, 68, 76, 84, 92, 100, 108, 116, 124, 136, 148,
  160, 172, 188, 204, 220, 240, 260, 284, 308, 336, 364, 396, 432, 468, 508, 552, 600, 652, 704,
];
/** Codebook 7: pairs of magnitudes up to 7, a hexadecimal digit each; signs follow. */
const PAIRS_NUMBER = 7;
const MAX_MAGNITUDE = 7;
const PAIRS = new PrefixCode(
  "100310301411621612620602731713722730703823832814841815851833824804840942925952905961950916" +
    "943935934953926962917a36a06a60a44a71a45a72a54a63a27a73a64a55a46a37b70b07b65b56b74b47b57b75" +
    "c76c66c67c77",
);
/** Of a scale factor to the one before it, plus 60: of differences up to 14. */
const MAX_STEP = 14;
const NO_STEP = 60;
const STEPS = new PrefixCode(
  "13c33b43d43a43e53953f638640637641742736743835844834845833946932931947a48a30a49a2fa4aa2e",
);
/** The scale factor with which a quantised value stands for itself. */
const UNIT_SCALE = 100;
const MAX_SCALE = 255;
const ROUNDING = 0.4054;

/** AAC-LC in ADTS: long windows, one codebook, a scale factor for each band with which it fits the codebook. */
export function aacEncoder({ comment }: SpeechFacts): SpeechEncoder {
  const transform = new LappedTransform();
  return {
    frameSamples: LINES,
    // The transform gives a frame out together with the next one.
    trailingSamples: LINES,
    head: () => id3Comment(comment),
    encode: (samples) => adtsFrame(channelOf(transform.lines(samples))),
  };
}

/** The modified discrete cosine transform over a frame and the one before it, with the sine window. */
class LappedTransform {
  readonly #samples = new Float64Array(2 * LINES);
  readonly #real = new Float64Array(2 * LINES);
  readonly #imaginary = new Float64Array(2 * LINES);
  readonly #lines = new Float64Array(LINES);

  /** The array is used again. Samples that lack are silence. */
  lines(samples: Int16Array): Float64Array {
    this.#samples.copyWithin(0, LINES);
    this.#samples.fill(0, LINES);
    this.#samples.set(samples, LINES);
    const length = this.#samples.length;
    for (let at = 0; at < length; at++) {
      const value = this.#samples[at]! * Math.sin((Math.PI / length) * (at + 0.5));
      const angle = (-Math.PI * at) / length;
      this.#real[at] = value * Math.cos(angle);
      this.#imaginary[at] = value * Math.sin(angle);
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

/** In place, for lengths that are powers of two. */
function fourier(real: Float64Array, imaginary: Float64Array): void {
  const length = real.length;
  for (let at = 1, turned = 0; at < length; at++) {
    let bit = length >> 1;
    for (; turned & bit; bit >>= 1) turned ^= bit;
    turned ^= bit;
    if (at < turned) {
      [real[at], real[turned]] = [real[turned]!, real[at]!];
      [imaginary[at], imaginary[turned]] = [imaginary[turned]!, imaginary[at]!];
    }
  }
  for (let half = 1; half < length; half *= 2) {
    for (let step = 0; step < half; step++) {
      const cosine = Math.cos((-Math.PI * step) / half);
      const sine = Math.sin((-Math.PI * step) / half);
      for (let low = step; low < length; low += 2 * half) {
        const high = low + half;
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

/** The bits of one channel's frame. */
function channelOf(lines: Float64Array): BitWriter {
  const scales = scalesOf(lines);
  const bits = new BitWriter();
  // A single channel, the first; its stream.
  bits.write(0, 3);
  bits.write(0, 4);
  bits.write(scales[0]!, 8);
  // A long sine window.
  bits.write(0, 4);
  bits.write(BAND_ENDS.length, 6);
  bits.write(0, 1);
  // One section; a length of 31 says that more follows.
  bits.write(PAIRS_NUMBER, 4);
  bits.write(31, 5);
  bits.write(BAND_ENDS.length - 31, 5);
  for (const [band, scale] of scales.entries()) {
    STEPS.write(bits, scale - (scales[band - 1] ?? scale) + NO_STEP);
  }
  // Neither pulses nor noise shaping nor gain control.
  bits.write(0, 3);
  for (const [band, end] of BAND_ENDS.entries()) {
    const from = BAND_ENDS[band - 1] ?? 0;
    writeBand(bits, lines.subarray(from, end), scales[band]!);
  }
  // The end of the frame.
  bits.write(7, 3);
  bits.align();
  return bits;
}

/** The finest with which each band fits the codebook, and which are near enough to their neighbours. */
function scalesOf(lines: Float64Array): number[] {
  const scales = BAND_ENDS.map((end, band) => {
    let peak = 0;
    for (let at = BAND_ENDS[band - 1] ?? 0; at < end; at++)
      peak = Math.max(peak, Math.abs(lines[at]!));
    const fitting = Math.ceil(4 * Math.log2(peak / MAX_MAGNITUDE ** (4 / 3))) + UNIT_SCALE;
    return Math.min(Math.max(fitting, UNIT_SCALE), MAX_SCALE);
  });
  // Coarser steps fit too.
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
  for (let at = 0; at < lines.length; at += 2) {
    const pair = [lines[at]!, lines[at + 1]!] as const;
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
  // Of variable rate; one block.
  bits.write(0x7ff, 11);
  bits.write(0, 2);
  return Buffer.concat([bits.bytes(), body]);
}
