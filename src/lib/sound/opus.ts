/** Samples of a frame at 48 kHz, by the configuration of its packet (RFC 6716, section 3.1). */
const SILK = [480, 960, 1_920, 2_880];
const HYBRID = [480, 960];
const CELT = [120, 240, 480, 960];

export const OPUS_RATE = 48_000;
/** 510 kbit/s, the highest rate (RFC 6716, section 2.1.1). */
const MAX_BYTES_A_SECOND = 63_750;

/** Returns the samples of an Opus packet from its first two bytes. */
export function opusSamples(first: number, second: number): number {
  const configuration = first >> 3;
  const samples =
    configuration < 12
      ? SILK[configuration & 3]!
      : configuration < 16
        ? HYBRID[configuration & 1]!
        : CELT[configuration & 3]!;
  const code = first & 3;
  return samples * (code === 0 ? 1 : code === 3 ? second & 0x3f : 2);
}

/**
 * Returns the seconds of the samples, and at least the duration of the bytes at the highest rate, which applies
 * to each pair of channels.
 */
export function opusSeconds(samples: number, bytes: number, channels: number): number {
  const pairs = Math.max(1, Math.ceil(channels / 2));
  return Math.max(samples / OPUS_RATE, bytes / (MAX_BYTES_A_SECOND * pairs));
}
