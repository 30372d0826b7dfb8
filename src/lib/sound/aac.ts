import { UnmeasurableSound } from "./byte-window.ts";
import type { MeasuredSound } from "./measured-sound.ts";

/** AAC (ISO/IEC 14496-3): its configuration and the duration of its frames. */

export const AAC_RATES = [
  96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
  7_350,
];
const EXPLICIT_RATE = 15;
const EXTENDED_TYPE = 31;
const FRAME_SAMPLES = 1_024;
/** Largest frame in bytes per channel: the decoder's input buffer. */
const MAX_FRAME_BYTES = 768;
/**
 * Bytes per second and channel above which an access unit can contain several frames. Decoders play all of them,
 * and only a decoder can count them.
 */
const SURE_BYTES_A_SECOND = 4_000;
const LOW_COMPLEXITY: ReadonlySet<number> = new Set([1, 2, 3, 4]);
/**
 * Object types with spectral band replication or parametric stereo. Their frames have the lower sample rate,
 * which is stated first.
 */
const HIGH_EFFICIENCY: ReadonlySet<number> = new Set([5, 29]);
const LOW_DELAY: ReadonlySet<number> = new Set([23, 39]);

export interface AacForm {
  readonly rate: number;
  readonly frameSamples: number;
  readonly channels: number;
}

/** Parses an AudioSpecificConfig. Throws UnmeasurableSound if its frames have no known length. */
export function aacForm(bytes: Uint8Array): AacForm {
  let position = 0;
  const read = (bits: number): number => {
    let value = 0;
    for (let at = 0; at < bits; at++, position++) {
      value = value * 2 + (((bytes[position >> 3] ?? 0) >> (7 - (position & 7))) & 1);
    }
    return value;
  };
  const readType = () => {
    const type = read(5);
    return type === EXTENDED_TYPE ? 32 + read(6) : type;
  };
  const readRate = () => {
    const code = read(4);
    return code === EXPLICIT_RATE ? read(24) : (AAC_RATES[code] ?? 0);
  };
  let type = readType();
  const rate = readRate();
  const channels = read(4) || 8;
  if (HIGH_EFFICIENCY.has(type)) {
    readRate();
    type = readType();
  }
  const isLowDelay = LOW_DELAY.has(type);
  if (rate === 0 || !(isLowDelay || LOW_COMPLEXITY.has(type))) throw new UnmeasurableSound();
  const isShort = read(1) === 1;
  const frameSamples = isLowDelay ? (isShort ? 480 : 512) : isShort ? 960 : FRAME_SAMPLES;
  return { rate, frameSamples, channels };
}

export function aacSound(frames: number, bytes: number, form: AacForm): MeasuredSound {
  const { rate, frameSamples, channels } = form;
  const least = Math.floor(bytes / (MAX_FRAME_BYTES * channels));
  const seconds = (Math.max(frames, least) * frameSamples) / rate;
  const longestSeconds = Math.max(seconds, bytes / (SURE_BYTES_A_SECOND * Math.min(channels, 2)));
  return { seconds, longestSeconds };
}
