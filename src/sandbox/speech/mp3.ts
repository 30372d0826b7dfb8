import { BitWriter } from "./bit-writer.ts";
import { ANALYSIS_WINDOW, PAIR_TABLES, type PairTable } from "./mp3-tables.ts";
import type { SpeechEncoder, SpeechFacts } from "./speech-encoder.ts";
import { id3Comment } from "./spoken-text.ts";

const SUBBANDS = 32;
const SLOTS = 18;
/** Lines of a granule. At this sample rate a frame is one granule. */
const LINES = SUBBANDS * SLOTS;
/** MPEG-2, layer III, no checksum, 64 kbit/s, 24 kHz, mono (ISO 13818-3). */
const FRAME_HEAD = [0xff, 0xf3, 0x84, 0xc0];
const FRAME_BYTES = 192;
const SIDE_INFO_BYTES = 9;
const MAX_DATA_BITS = (FRAME_BYTES - FRAME_HEAD.length - SIDE_INFO_BYTES) * 8;
/** Ends of the regions of a granule, each with its own table: bounds of scale factor bands at 24 kHz. */
const REGION_ENDS = [36, 96, LINES];
/** The region bounds in the side information: numbers of bands, minus one. */
const REGION_COUNTS = { first: 5, second: 4 };
/** First line above the speech, at 10 kHz. Higher lines are zero. */
const TOP_LINE = 480;
const MAX_GAIN = 255;
/** Gain at which a quantised value equals its line. */
const UNIT_GAIN = 210;
/** Largest magnitude: 13 extra bits plus the largest symbol. */
const MAX_MAGNITUDE = 8191 + 15;
const ROUNDING = 0.4054;

/** Returns an encoder of MP3 with constant bit rate and independent frames. */
export function mp3Encoder({ comment }: SpeechFacts): SpeechEncoder {
  const filter = new HybridFilter();
  return {
    frameSamples: LINES,
    // Delay of the filter bank and transform, here and in the decoder.
    trailingSamples: 1105,
    head: () => id3Comment(comment),
    encode: (samples) => frameOf(quantise(filter.lines(samples))),
  };
}

/** Divides audio into 32 subbands with 18 lines each, like the encoder of the standard. */
class HybridFilter {
  /** The last 512 samples, newest first. */
  readonly #history = new Float64Array(ANALYSIS_WINDOW.length);
  readonly #folded = new Float64Array(64);
  /** Slots of the previous granule and of this granule, by subband. */
  readonly #slots = Array.from({ length: SUBBANDS }, () => new Float64Array(2 * SLOTS));
  readonly #lines = new Float64Array(LINES);

  /**
   * Returns the lines of one granule. The next call overwrites the returned array. Missing samples count as
   * silence.
   */
  lines(samples: Int16Array): Float64Array {
    for (const slots of this.#slots) slots.copyWithin(0, SLOTS);
    for (let slot = 0; slot < SLOTS; slot++) this.#analyse(samples, slot);
    for (let band = 0; band < SUBBANDS; band++) this.#transform(band);
    for (let band = 1; band < SUBBANDS; band++) this.#reduceAliases(band * SLOTS);
    return this.#lines;
  }

  #analyse(samples: Int16Array, slot: number): void {
    const history = this.#history;
    history.copyWithin(SUBBANDS, 0, history.length - SUBBANDS);
    for (let at = 0; at < SUBBANDS; at++) {
      history[SUBBANDS - 1 - at] = (samples[slot * SUBBANDS + at] ?? 0) / 32_768;
    }
    const folded = this.#folded;
    for (let at = 0; at < folded.length; at++) {
      let sum = 0;
      for (let from = at; from < history.length; from += folded.length) {
        sum += ANALYSIS_WINDOW[from]! * history[from]!;
      }
      folded[at] = sum;
    }
    for (let band = 0; band < SUBBANDS; band++) {
      let sum = 0;
      const row = band * folded.length;
      for (let at = 0; at < folded.length; at++) sum += SUBBAND_COSINES[row + at]! * folded[at]!;
      // Odd subbands have an inverted frequency order.
      const isInverted = band % 2 === 1 && slot % 2 === 1;
      this.#slots[band]![SLOTS + slot] = isInverted ? -sum : sum;
    }
  }

  #transform(band: number): void {
    const slots = this.#slots[band]!;
    for (let line = 0; line < SLOTS; line++) {
      let sum = 0;
      const row = line * slots.length;
      for (let at = 0; at < slots.length; at++) sum += LINE_COSINES[row + at]! * slots[at]!;
      this.#lines[band * SLOTS + line] = sum;
    }
  }

  /** Reduces the aliasing between the subbands on both sides of a line. */
  #reduceAliases(border: number): void {
    const lines = this.#lines;
    for (const [offset, [straight, crossed]] of BUTTERFLIES.entries()) {
      const below = lines[border - 1 - offset]!;
      const above = lines[border + offset]!;
      lines[border - 1 - offset] = below * straight + above * crossed;
      lines[border + offset] = above * straight - below * crossed;
    }
  }
}

const SUBBAND_COSINES = Float64Array.from({ length: SUBBANDS * 64 }, (_, at) =>
  Math.cos(((2 * Math.floor(at / 64) + 1) * ((at % 64) - 16) * Math.PI) / 64),
);

/** Cosines of the transform, multiplied by the window of long blocks. */
const LINE_COSINES = Float64Array.from({ length: SLOTS * 2 * SLOTS }, (_, at) => {
  const slot = at % (2 * SLOTS);
  const line = Math.floor(at / (2 * SLOTS));
  const window = Math.sin((Math.PI / (2 * SLOTS)) * (slot + 0.5));
  const angle = (Math.PI / (4 * SLOTS)) * (2 * slot + 1 + SLOTS) * (2 * line + 1);
  return (window * Math.cos(angle)) / (SLOTS / 2);
});

const BUTTERFLIES = [-0.6, -0.535, -0.33, -0.185, -0.095, -0.041, -0.0142, -0.0037].map(
  (ratio) => [1 / Math.hypot(1, ratio), ratio / Math.hypot(1, ratio)] as const,
);

interface Granule {
  readonly gain: number;
  readonly lines: Int32Array;
  readonly coding: Coding;
}

/** Quantises lines with the smallest gain whose code fits into a frame. */
function quantise(lines: Float64Array): Granule {
  const powers = Float64Array.from(lines, (line) => Math.abs(line) ** 0.75);
  let coarse = MAX_GAIN;
  let fine = 0;
  let best = quantised(lines, powers, coarse);
  while (fine < coarse) {
    const gain = (fine + coarse) >> 1;
    const granule = quantised(lines, powers, gain);
    if (granule.coding.bits <= MAX_DATA_BITS) {
      best = granule;
      coarse = gain;
    } else fine = gain + 1;
  }
  return best;
}

function quantised(lines: Float64Array, powers: Float64Array, gain: number): Granule {
  const scale = 2 ** ((-3 / 16) * (gain - UNIT_GAIN));
  const values = new Int32Array(LINES);
  for (let at = 0; at < TOP_LINE; at++) {
    const magnitude = Math.floor(powers[at]! * scale + ROUNDING);
    if (magnitude > MAX_MAGNITUDE) return { gain, lines: values, coding: UNFIT };
    values[at] = lines[at]! < 0 ? -magnitude : magnitude;
  }
  return { gain, lines: values, coding: codingOf(values) };
}

/** The coding of lines: pairs, then groups of four with magnitudes of at most 1, then zeros. */
interface Coding {
  readonly bits: number;
  readonly pairLines: number;
  readonly smallLines: number;
  /** The table of each region. Undefined if the region is empty or zero. */
  readonly tables: readonly (PairTable | undefined)[];
}

const UNFIT: Coding = { bits: Number.POSITIVE_INFINITY, pairLines: 0, smallLines: 0, tables: [] };

function codingOf(lines: Int32Array): Coding {
  let end = LINES;
  while (end > 0 && lines[end - 1] === 0) end--;
  let pairLines = end;
  while (pairLines > 0 && Math.abs(lines[pairLines - 1]!) <= 1) pairLines--;
  pairLines += pairLines % 2;
  const smallLines = Math.min(Math.ceil((end - pairLines) / 4) * 4, LINES - pairLines);
  // The last lines can be fewer than four.
  if (smallLines % 4 !== 0) return { ...UNFIT };
  let bits = smallLines;
  for (let at = pairLines; at < end; at++) if (lines[at] !== 0) bits++;
  const tables = regionsOf(pairLines).map(([from, to]) => {
    const [table, tableBits] = cheapestTable(lines, from, to);
    bits += tableBits;
    return table;
  });
  return { bits, pairLines, smallLines, tables };
}

function regionsOf(pairLines: number): [number, number][] {
  return REGION_ENDS.map((end, region) => {
    const from = Math.min(REGION_ENDS[region - 1] ?? 0, pairLines);
    return [from, Math.min(end, pairLines)];
  });
}

function cheapestTable(
  lines: Int32Array,
  from: number,
  to: number,
): [PairTable | undefined, number] {
  let max = 0;
  for (let at = from; at < to; at++) max = Math.max(max, Math.abs(lines[at]!));
  if (max === 0) return [undefined, 0];
  let cheapest: [PairTable | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const table of PAIR_TABLES) {
    if (table.max < max) continue;
    let bits = 0;
    for (let at = from; at < to; at += 2) {
      const first = Math.abs(lines[at]!);
      const second = Math.abs(lines[at + 1]!);
      bits += table.code.lengthOf(symbolOf(first, second));
      bits += (first > 0 ? 1 : 0) + (second > 0 ? 1 : 0);
      if (first >= 15) bits += table.extraBits;
      if (second >= 15) bits += table.extraBits;
    }
    if (bits < cheapest[1]) cheapest = [table, bits];
  }
  return cheapest;
}

function symbolOf(first: number, second: number): number {
  return (Math.min(first, 15) << 4) | Math.min(second, 15);
}

function frameOf({ gain, lines, coding }: Granule): Uint8Array {
  const bits = new BitWriter();
  for (const byte of FRAME_HEAD) bits.write(byte, 8);
  // The data begin in this frame. One private bit.
  bits.write(0, 9);
  bits.write(coding.bits, 12);
  bits.write(coding.pairLines / 2, 9);
  bits.write(gain, 8);
  // No scale factors, default window.
  bits.write(0, 10);
  for (const table of coding.tables) bits.write(table?.number ?? 0, 5);
  bits.write(REGION_COUNTS.first, 4);
  bits.write(REGION_COUNTS.second, 3);
  // Default scale factor steps. Plain table for groups of four.
  bits.write(0b01, 2);
  for (const [region, [from, to]] of regionsOf(coding.pairLines).entries()) {
    writePairs(bits, lines.subarray(from, to), coding.tables[region]);
  }
  const small = lines.subarray(coding.pairLines, coding.pairLines + coding.smallLines);
  for (let at = 0; at < small.length; at += 4) writeFour(bits, small.subarray(at, at + 4));
  bits.align();
  const frame = new Uint8Array(FRAME_BYTES);
  frame.set(bits.bytes());
  return frame;
}

function writePairs(bits: BitWriter, lines: Int32Array, table: PairTable | undefined): void {
  if (table === undefined) return;
  for (let at = 0; at < lines.length; at += 2) {
    const pair = [lines[at]!, lines[at + 1]!] as const;
    table.code.write(bits, symbolOf(Math.abs(pair[0]), Math.abs(pair[1])));
    for (const value of pair) {
      if (Math.abs(value) >= 15) bits.write(Math.abs(value) - 15, table.extraBits);
      if (value !== 0) bits.write(value < 0 ? 1 : 0, 1);
    }
  }
}

/** Writes four lines of magnitude 0 or 1: a bit for each line (1 for zero), then the signs of the others. */
function writeFour(bits: BitWriter, lines: Int32Array): void {
  for (const line of lines) bits.write(line === 0 ? 1 : 0, 1);
  for (const line of lines) if (line !== 0) bits.write(line < 0 ? 1 : 0, 1);
}
